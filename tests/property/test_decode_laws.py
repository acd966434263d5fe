"""Laws of decoding, over arbitrary bytes and over every spelling of random JSON."""

import json
from typing import Any

from hypothesis import example, given, strategies as st

from assay_stream.canonical.decode import decode_json, decode_json_strict
from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError

CODES = {
    "not_json", "not_utf8", "duplicate_key", "number_overflow", "lone_surrogate", "non_finite_number", "too_deep",
    "too_large",
}  # fmt: skip
WITH_PATH = {"duplicate_key", "number_overflow", "lone_surrogate", "non_finite_number"}

SPACE = st.sampled_from(["", "", "", " ", "\n", "\t\r\n "])
NUMBERS = st.one_of(
    st.integers().map(str),
    st.integers(min_value=2**53 - 2, max_value=2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        ["0", "-0", "-0.0", "1.0", "1e5", "1E+5", "0.10", "100e-2", "1e-400", "1e400", "-1e400", "NaN", "Infinity",
         "-Infinity", "18446744073709551615", "18446744073709551616", "9007199254740993", "1" + "0" * 308,
         "2" + "0" * 308, "1" * 320, "01", "1.", ".5", "+1", "1e"]
    ),
)  # fmt: skip
CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs"], exclude_characters='"\\', min_codepoint=0x20),
    st.sampled_from(
        [r"\"", r"\\", r"\n", r"\u0061", r"\u0000", r"\ud83d\ude00", r"\uD800", r"\udc00", r"\x", "\x01", "[", "{"]
    ),
)  # fmt: skip
TEXTS = st.lists(CHARACTERS, max_size=6).map(lambda parts: f'"{"".join(parts)}"')
# Few keys, so that they repeat, in several spellings.
KEYS = (
    st.sampled_from(['"a"', r'"\u0061"', '"b"', '"b c"', '""', '"\U0001f600"', r'"\ud83d\ude00"', r'"\ud83d"']) | TEXTS
)


@st.composite
def spelled_lists(draw: st.DrawFn, children: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(children, max_size=4))
    return f"[{draw(SPACE)}{f'{draw(SPACE)},{draw(SPACE)}'.join(items)}{draw(SPACE)}]"


@st.composite
def spelled_objects(draw: st.DrawFn, children: st.SearchStrategy[str]) -> str:
    members = draw(st.lists(st.tuples(KEYS, children), max_size=4))
    colon = f"{draw(SPACE)}:{draw(SPACE)}"
    return f"{draw(SPACE)}{{{','.join(f'{name}{colon}{value}' for name, value in members)}{draw(SPACE)}}}"


SPELLED = st.recursive(
    st.sampled_from(["null", "true", "false"]) | NUMBERS | TEXTS,
    lambda children: spelled_lists(children) | spelled_objects(children),
    max_leaves=15,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=5) | st.dictionaries(st.text(max_size=5), children, max_size=5),
    max_leaves=20,
)  # fmt: skip


def _outcome(decode: Any, raw: bytes) -> Any:
    """A value as text that tells 1 from 1.0 and 0.0 from -0.0, or the error."""
    try:
        return repr(decode(raw))
    except InputError as error:
        return error.args


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    raw = bytearray(draw(SPELLED).encode())
    for _ in range(draw(st.integers(min_value=1, max_value=4))):
        at = draw(st.integers(min_value=0, max_value=len(raw)))
        end = draw(st.integers(min_value=at, max_value=min(at + 2, len(raw))))
        raw[at:end] = draw(st.binary(max_size=2) | st.sampled_from([b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\"]))
    return bytes(raw)


@given(st.binary() | mutated() | st.text().map(str.encode))
@example(b"[" * 128 + b'"' + b'\\"' * 100)
@example(b'{"a":1,"a":2}]]]')
def test_decoding_is_total(raw: bytes) -> None:
    outcome = _outcome(decode_json, raw)
    if isinstance(outcome, tuple):
        code, _, path = outcome
        assert code in CODES
        assert (path != "") == (code in WITH_PATH)
        assert path.isascii()


@given(SPELLED)
def test_fast_path_equals_strict_path(text: str) -> None:
    assert _outcome(decode_json, text.encode()) == _outcome(decode_json_strict, text.encode())


@given(SPELLED, st.integers(100, 130), st.booleans())
def test_fast_path_equals_strict_path_on_deep_text(text: str, depth: int, is_long: bool) -> None:
    """Both paths refuse the same depth, whether a text is so long that its brackets are not counted or not."""
    raw = b"[" * depth + text.encode() + b"]" * depth
    raw = b'["%b",%b]' % (b"[" * 5_000, raw) if is_long else raw
    assert _outcome(decode_json, raw) == _outcome(decode_json_strict, raw)


@given(mutated())
def test_fast_path_equals_strict_path_on_broken_text(raw: bytes) -> None:
    assert _outcome(decode_json, raw) == _outcome(decode_json_strict, raw)


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_written_values_come_back(value: Any, indent: int | None, ascii_only: bool) -> None:
    raw = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert repr(decode_json(raw)) == repr(value)


@given(SPELLED)
def test_what_is_decoded_can_be_canonicalized(text: str) -> None:
    try:
        value = decode_json(text.encode())
    except InputError:
        return
    assert canonicalize(value)


@given(
    st.lists(st.sampled_from(["a", "b"]) | st.integers(0, 3), max_size=6),
    st.sampled_from(["NaN", "1e999", r'"\ud800"']),
)
def test_the_path_leads_to_the_offence(steps: list[str | int], offence: str) -> None:
    text, path = offence, "$"
    for step in reversed(steps):
        text = f'{{"x":[],"{step}":{text}}}' if isinstance(step, str) else f"[{'{},' * step}{text}]"
    for step in steps:
        path += f".{step}" if isinstance(step, str) else f"[{step}]"
    outcome = _outcome(decode_json, text.encode())
    assert outcome[2] == path
