"""The canonical form ``schemapin-v1`` and the schema digest over it (SchemaPin specification, section 4).

It is not RFC 8785. Keys are sorted by code point, and numbers are written as the reference Python SDK writes them:
``1.0`` keeps its fraction, ``1e20`` becomes ``1e+20``, integers of any size keep their digits. The specification leaves
both open, and the SDKs in other languages differ.

It stands apart from ``schemapin`` because what a proxy embeds fingerprints tools with it, and has no cryptography.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any

import orjson

from assay_stream.canonical.decode import NegativeZero
from assay_stream.canonical.digest import Canonicalized, Digest, sha256_of
from assay_stream.errors import InputError

SIGNATURE_FIELD = "x-schema-signature"
"""The name under which a tool carries its signature: at its top level, or in ``_meta``."""

_TEXT_ONLY = frozenset({str})
_OBJECTS = (dict, Canonicalized)
_PLAIN_MAX = 2**63 - 1
_DEPTH_MAX = 254
"""As in ``canonical.digest``. Input nests 127 at most."""


class Mode(StrEnum):
    """What a signature covers; the SDKs differ, and the specification can be read both ways.

    The Python, JavaScript and Rust SDKs hash the canonical form and sign with a signer that hashes again. The Go SDK
    hashes once.
    """

    DOUBLE_SHA256 = "double_sha256"
    SINGLE_SHA256 = "single_sha256"


def canonical(value: Any) -> bytes:
    """Return the canonical form ``schemapin-v1`` of a JSON value.

    Raises:
        InputError: ``schema_canonicalization_failed`` for anything that is not a JSON value.
    """
    # Without fractions the two writers agree, and one is several times faster. What it refuses (half a surrogate
    # pair, too deep) takes the other path, to be refused by name.
    with suppress(orjson.JSONEncodeError, RecursionError):
        if _is_plain(value):
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    _check(value, 0)
    try:
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False, check_circular=False
        )
        return text.encode()
    except UnicodeEncodeError:
        raise InputError("schema_canonicalization_failed", "an unpaired surrogate is not valid Unicode") from None
    except ValueError:
        # Python writes no integers of over 4,300 digits, and was told to write no NaN.
        raise InputError("schema_canonicalization_failed", "a number is not finite or has too many digits") from None


def schema_digest(tool: Mapping[str, Any]) -> Digest:
    """Return the schema digest: SHA-256 over the canonical form of a tool without the signature it carries.

    Raises:
        InputError: ``schema_canonicalization_failed``.
    """
    return sha256_of(canonical(_without_carriers(tool)))


def carried_signature(tool: Mapping[str, Any]) -> str | None:
    for holder in (tool, tool.get("_meta")):
        if isinstance(holder, Mapping) and isinstance(signature := holder.get(SIGNATURE_FIELD), str):
            return signature
    return None


def _without_carriers(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the signed content: a signature cannot cover itself.

    Only a field that holds the signature being checked is left out. Any other field of that name is content; otherwise
    it would be a place for text that no signature covers.
    """
    signature = carried_signature(tool)
    if signature is None:
        return dict(tool)
    signed = {name: value for name, value in tool.items() if (name, value) != (SIGNATURE_FIELD, signature)}
    meta = tool.get("_meta")
    if isinstance(meta, Mapping) and meta.get(SIGNATURE_FIELD) == signature:
        rest = {name: value for name, value in meta.items() if name != SIGNATURE_FIELD}
        # A _meta that held nothing else was made for the signature, after the signing.
        if rest:
            signed["_meta"] = rest
        else:
            del signed["_meta"]
    return signed


def _is_plain(value: Any) -> bool:
    """Return True if sorted orjson output is the canonical form: it sorts by UTF-8, which is code point order."""
    kind = type(value)
    if kind is str or kind is bool or value is None or (kind is Canonicalized and value.is_plain):
        return True
    if kind in _OBJECTS:
        return _TEXT_ONLY.issuperset(map(type, value)) and all(
            type(item) is str or _is_plain(item) for item in value.values()
        )
    if kind is list:
        return all(map(_is_plain, value))
    return kind is int and -_PLAIN_MAX <= value <= _PLAIN_MAX


def _check(value: Any, depth: int) -> None:
    """Refuse what ``json.dumps`` would coerce: non-string keys, tuples, odd subclasses."""
    if depth > _DEPTH_MAX:
        raise InputError("schema_canonicalization_failed", "the value is nested too deeply")
    kind = type(value)
    if kind in _OBJECTS:
        for name, item in value.items():
            if type(name) is not str:
                raise InputError("schema_canonicalization_failed", "object keys must be text")
            _check(item, depth + 1)
    elif kind is list:
        for item in value:
            _check(item, depth + 1)
    elif value is not None and kind not in (str, bool, int, float, NegativeZero):
        raise InputError("schema_canonicalization_failed", "the value is not JSON")
