"""Digests and canonical JSON."""

from collections import OrderedDict
from typing import Any

import pytest

from assay_stream.canonical.digest import Canonicalized, Digest, canonicalize, compact_copy, plain_form
from tests.support.counting import allocating
from tests.support.errors import raises_code

# FIPS 180-4 examples.
OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


class TestDigest:
    @pytest.mark.parametrize(
        "text",
        ["", OF_ABC, f"sha1:{OF_ABC}", f"SHA256:{OF_ABC}", f"sha256:{OF_ABC.upper()}", f"sha256:{OF_ABC[:-1]}",
         f"sha256:{OF_ABC}0", f"sha256: {OF_ABC[1:]}", f"sha256:{OF_ABC}\n", f"sha256:sha256:{OF_ABC}",
         "sha256:" + "\u0661" * 64],
    )  # fmt: skip
    def test_parse_refuses(self, text: str) -> None:
        with raises_code("bad_digest"):
            Digest.parse(text)

    @pytest.mark.parametrize("hexadecimal", ["", "0" * 63, "0" * 65, "g" * 64, "A" * 64, "0" * 64 + "\n"])
    def test_cannot_be_wrong(self, hexadecimal: str) -> None:
        with raises_code("bad_digest"):
            Digest(hexadecimal)


class TestCanonicalize:
    @pytest.mark.parametrize(
        ("value", "canonical"),
        [
            (None, b"null"),
            (True, b"true"),
            ([True, 1, 1.0], b"[true,1,1]"),
            ({}, b"{}"),
            ((1, (2,)), b"[1,[2]]"),
            (OrderedDict(b=1, a=2), b'{"a":2,"b":1}'),
            ({"b": [], "a": {"d": 1, "c": 2}}, b'{"a":{"c":2,"d":1},"b":[]}'),
            (-0.0, b"0"),
            (1e21, b"1e+21"),
            (1e-7, b"1e-7"),
            (5e-324, b"5e-324"),
            (333333333.33333329, b"333333333.3333333"),
            (2**53 - 1, b"9007199254740991"),
            (2**53, b"9007199254740992"),
            (2**53 + 1, b"9007199254740992"),
            (-(2**53) - 1, b"-9007199254740992"),
            (2**64 - 1, b"18446744073709552000"),
            (10**21, b"1e+21"),
            ({"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\xf6": 7},
             '{"\\r":2,"1":4,"\x80":6,"\xf6":7,"\u20ac":1,"\U0001f600":5,"\ufb33":3}'.encode()),
            ("\x00\b\t\n\x0b\f\r\x1f\"\\/\x7f\u2028",
             b'"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\\"\\\\/\x7f\xe2\x80\xa8"'),
        ],
    )  # fmt: skip
    def test_bytes(self, value: Any, canonical: bytes) -> None:
        """A value has exactly these canonical bytes (RFC 8785 sections 3.2.2, 3.2.3 and appendix B)."""
        assert canonicalize(value) == canonical

    @pytest.mark.parametrize(
        "value",
        [float("nan"), float("inf"), [float("-inf")], {1: 2}, {None: 1}, {"a": {1.5: 1}}, {1, 2}, b"a", object(),
         1j, [10**309], {"a": Digest(OF_ABC)}],
    )  # fmt: skip
    def test_what_is_no_json(self, value: Any) -> None:
        with raises_code("not_canonicalizable"):
            canonicalize(value)

    @pytest.mark.parametrize(
        "value", ["\ud800", {"a": ["\udfff"]}, {"\ud800": 1}, {"\ud800": 1, "a": 1.5}, ["\ud800", 0.5]]
    )
    def test_lone_surrogates(self, value: Any) -> None:
        with raises_code("lone_surrogate"):
            canonicalize(value)

    def test_depth_of_records(self) -> None:
        value: Any = 0.5
        for _ in range(127 + 10):
            value = {"a": value}
        assert canonicalize(value).startswith(b'{"a":{"a":')

    def test_a_value_that_contains_itself(self) -> None:
        value: list[Any] = []
        value.append(value)
        with raises_code("too_deep"):
            canonicalize(value)


class TestCanonicalized:
    @pytest.mark.parametrize(
        ("members", "is_plain"),
        [
            ({}, True),
            ({"b": [1, "\U0001f600", None, True], "a": {"c": -1}}, True),
            ({"a": 1.5}, False),
            ({"a": [{"\uff3a": 1, "\U0001f600": 2}]}, False),
            ({"a": 2**53}, False),
        ],
    )
    def test_wherever_it_stands_the_bytes_are_those_of_a_bare_object(
        self, members: dict[str, Any], is_plain: bool
    ) -> None:
        known = Canonicalized(members)
        assert known == members
        assert (known.form, known.is_plain) == (canonicalize(members), is_plain)
        assert canonicalize(known) == canonicalize(members)
        assert canonicalize([{"x": known, "w": 1}]) == canonicalize([{"x": members, "w": 1}])
        assert Canonicalized({"x": known}).form == canonicalize({"x": members})
        assert Canonicalized({"x": known}).is_plain == is_plain

    def test_one_that_is_not_plain_makes_no_plain_form(self) -> None:
        known = Canonicalized({"a": -0.0})
        assert plain_form(known) is None
        assert plain_form({"x": known, "y": 1}) is None
        assert plain_form({"x": Canonicalized({"b": 1, "a": 2})}) == b'{"x":{"a":2,"b":1}}'

    @pytest.mark.parametrize(
        ("members", "code"), [({"a": "\ud800"}, "lone_surrogate"), ({"a": float("nan")}, "not_canonicalizable")]
    )
    def test_what_has_no_canonical_form_cannot_be_made(self, members: dict[str, Any], code: str) -> None:
        with raises_code(code):
            Canonicalized(members)


def test_what_is_kept_takes_its_own_size() -> None:
    """Kilobytes of room behind each of many short forms would be most of a worker's memory."""
    with allocating() as allocated:
        forms = [compact_copy(canonicalize({"number": number, "text": "x" * 100})) for number in range(1_000)]
    assert forms[7] == canonicalize({"number": 7, "text": "x" * 100})
    assert allocated.kept_bytes < 2 * sum(map(len, forms))
