"""The RFC 8785 vectors of Assay's canonical form, read as every record is: decoded strictly first."""

import json
from pathlib import Path

import pytest

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import canonicalize
from tests.support.errors import raises_code

FILE = Path(__file__).resolve().parents[1] / "data" / "vectors" / "rfc8785_assay.json"
CONTENT = json.loads(FILE.read_text(encoding="utf-8"))
VECTORS = {name: vector for name, vector in CONTENT["vectors"].items() if name != "_about"}
REFUSED = {name: vector for name, vector in VECTORS.items() if "expected" not in vector}
ACCEPTED = {name: vector for name, vector in VECTORS.items() if "expected" in vector}

# What I-JSON (RFC 7493 section 2), on which RFC 8785 section 3.1 stands, does not allow.
NOT_I_JSON = {
    "duplicate_key": (b'{"a":1,"a":1}', "duplicate_key"),
    "duplicate_key_by_escape": (rb'{"a":1,"\u0061":2}', "duplicate_key"),
    "nan": (b'{"a":NaN}', "non_finite_number"),
    "infinity": (b'{"a":-Infinity}', "non_finite_number"),
    "overflow": (b'{"a":1e400}', "number_overflow"),
    "high_surrogate_alone": (rb'{"a":"\ud83d"}', "lone_surrogate"),
    "low_surrogate_alone": (rb'{"a":"\ude00"}', "lone_surrogate"),
    "surrogates_swapped": (rb'{"a":"\ude00\ud83d"}', "lone_surrogate"),
    "surrogate_in_utf8": (b'{"a":"\xed\xa0\x80"}', "not_utf8"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_canonical_bytes(name: str) -> None:
    vector = ACCEPTED[name]
    assert canonicalize(decode_json(vector["input"].encode())) == vector["expected"].encode()


@pytest.mark.parametrize("name", ACCEPTED)
def test_canonical_bytes_are_a_fixed_point(name: str) -> None:
    expected = ACCEPTED[name]["expected"].encode()
    assert canonicalize(decode_json(expected)) == expected


def test_every_vector_has_an_outcome() -> None:
    assert not REFUSED
    assert ACCEPTED.keys() == CONTENT["python_package_results"].keys()


@pytest.mark.parametrize("name", NOT_I_JSON)
def test_refusals(name: str) -> None:
    raw, code = NOT_I_JSON[name]
    with raises_code(code):
        decode_json(raw)
