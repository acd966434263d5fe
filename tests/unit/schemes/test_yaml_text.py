"""Strict YAML: texts stay texts, and nothing is read in two ways."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from assay_stream.errors import InputError
from assay_stream.limits.core import Limits
from assay_stream.schemes import pin_files
from assay_stream.schemes.pin_files import decode_json_or_yaml, decode_yaml

LIMITS = Limits(record_bytes_max=1_000, depth_max=4)


@pytest.fixture(autouse=True, params=["CBaseLoader", "BaseLoader"])
def _with_and_without_libyaml(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installations without the C library read alike."""
    monkeypatch.setattr(pin_files, "_LOADER", getattr(yaml, request.param))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a", "a"),
        ("a: on\nb: 1e3\nc: 0123\nd: 2026-01-01", {"a": "on", "b": "1e3", "c": "0123", "d": "2026-01-01"}),
        ("a:\nb: ~\nc: null\nd: 'null'\ne: ''", {"a": None, "b": None, "c": None, "d": "null", "e": ""}),
        ("null: 1\ntrue: 2", {"null": "1", "true": "2"}),
        ("- a\n- [b, {c: d}]", ["a", ["b", {"c": "d"}]]),
        ("a: &x {k: v}\nb: *x", {"a": {"k": "v"}, "b": {"k": "v"}}),
        ("a: &x v\nb: *x", {"a": "v", "b": "v"}),
        ('{"<<": 1}', {"<<": "1"}),
        ("# nothing\n---\na: b\n...\n", {"a": "b"}),
    ],
)
def test_what_is_read(text: str, value: Any) -> None:
    assert decode_yaml(text.encode(), limits=LIMITS) == value


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"a: 1\na: 2", "duplicate_key"),
        (b"a: {b: 1, b: 2}", "duplicate_key"),
        (b"a: 1\n'a': 2", "duplicate_key"),
        (b"a: &x {b: 1}\nc:\n  <<: *x", "unsupported_yaml"),
        (b"? [a]\n: b", "unsupported_yaml"),
        (b"a: &x k\n*x : b", "unsupported_yaml"),
        (b"a\n---\nb", "unsupported_yaml"),
        (b"a: *x", "not_yaml"),
        (b"a: [", "not_yaml"),
        (b"a: b: c", "not_yaml"),
        (b"\x00", "not_yaml"),
        (b"\xff", "not_utf8"),
        (b"[[[[[]]]]]", "too_deep"),
        (b"{a: {a: {a: {a: {a: 1}}}}}", "too_deep"),
        (b" " * 1_001, "too_large"),
    ],
)
def test_what_is_refused(raw: bytes, code: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_yaml(raw, limits=LIMITS)
    assert caught.value.code == code


def test_depth_costs_no_stack() -> None:
    with pytest.raises(InputError) as caught:
        decode_yaml(b"[" * 100_000, limits=Limits())
    assert caught.value.code in {"too_deep", "not_yaml"}


@pytest.mark.parametrize(
    ("raw", "value"), [(b'{"a": 1}', {"a": 1}), (b"{a: 1}", {"a": "1"}), (b" [1]", [1]), (b"a: 1", {"a": "1"})]
)
def test_json_is_read_as_json(raw: bytes, value: Any) -> None:
    """What is JSON keeps its numbers; what only looks like it is YAML."""
    assert decode_json_or_yaml(raw, limits=LIMITS) == value


def test_json_is_not_read_as_yaml_when_it_is_refused() -> None:
    """A key twice in JSON is the end of it."""
    with pytest.raises(InputError) as caught:
        decode_json_or_yaml(b'{"a": 1, "a": 2}', limits=LIMITS)
    assert (caught.value.code, caught.value.path) == ("duplicate_key", "$.a")
