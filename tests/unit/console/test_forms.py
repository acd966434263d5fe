"""What a form posts."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from assay_stream.console.deciding import Form, read_fields
from assay_stream.errors import InputError
from assay_stream.limits import CONSOLE_LIMITS
from tests.support.console import ALICE


def a_form(**fields: tuple[str, ...]) -> Form:
    return Form(fields=fields, operator=ALICE, now_us=0)


def test_fields_are_read_as_a_browser_writes_them() -> None:
    """Several values, blanks, other alphabets; a line ends with a line feed."""
    read = read_fields(b"uid=a&uid=b&reason=one%0D%0Atwo+%E2%82%AC&empty=")
    assert read == {"uid": ("a", "b"), "reason": ("one\ntwo €",), "empty": ("",)}
    assert read_fields(b"") == {}


@pytest.mark.parametrize("body", [b"reason", b"a=1&&b=2", b"reason=%FF", b"reason=\xff", b"a=%ED%A0%80", b"&"])
def test_a_form_that_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(InputError, match="bad_form"):
        read_fields(body)


def test_a_form_is_bounded_in_bytes_and_fields() -> None:
    few = replace(CONSOLE_LIMITS, form_bytes_max=7, form_fields_max=2)
    assert len(read_fields(b"a=1&b=2", few)) == 2
    for body in (b"a=1&b=23", b"a=&b=&c="):
        with pytest.raises(InputError, match="bad_form"):
            read_fields(body, few)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(InputError):
        assert all(values for values in read_fields(body).values())


def test_a_field_is_taken_as_it_is_or_without_blanks() -> None:
    """Names may begin with blanks; a reason is more than blanks."""
    form = a_form(server=(" s ",), reason=(" why\n",), blank=(" ",))
    assert (form.name("server"), form.text("server"), form.reason()) == (" s ", "s", "why")
    assert (form.text("blank"), form.text("missing")) == (None, None)


def test_what_is_missing_or_given_twice_is_named() -> None:
    """Nobody decides by the first of two values."""
    for form in (a_form(), a_form(reason=(" ",), server=("",)), a_form(reason=("a", "b"), server=("a", "b"))):
        with pytest.raises(InputError, match="reason"):
            form.reason()
        with pytest.raises(InputError, match="server"):
            form.name("server")
