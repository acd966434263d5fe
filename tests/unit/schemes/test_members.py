"""Members of an object, taken strictly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.schemes.members import Members

WHOLE = {"a": {"b": ["x"], "n": True, "d": "sha256:" + "0" * 63}, "list": [{}, 7]}


@pytest.mark.parametrize(
    ("read", "code", "path"),
    [
        (lambda: Members([]), "wrong_type", "$"),
        (lambda: Members(WHOLE).take("b", str), "missing_field", "$.b"),
        (lambda: Members(WHOLE).object("list"), "wrong_type", "$.list"),
        (lambda: Members(WHOLE).object("a").take("n", int), "wrong_type", "$.a.n"),
        (lambda: Members(WHOLE).object("a").digest("d"), "bad_digest", "$.a.d"),
        (lambda: list(Members(WHOLE).objects("list")), "wrong_type", "$.list[1]"),
        (lambda: Members({"a": "y"}).one_of("a", ("x",)), "unknown_value", "$.a"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(read: Callable[[], Any], code: str, path: str) -> None:
    with pytest.raises(InputError) as caught:
        read()
    assert (caught.value.code, caught.value.path) == (code, path)


def test_the_rest_is_what_nobody_took() -> None:
    members = Members({"a": 1, "b": "text"})
    assert members.take("b", str) == "text"
    assert members.rest == {"a": 1}
