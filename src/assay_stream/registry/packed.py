"""Definitions as the registry keeps them: canonical and packed, so that a change is understood after a restart."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from typing import Any

import orjson

from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import IntegrityError

_LEVEL = 6


def pack(definition: dict[str, Any]) -> str:
    """Return a definition in the form in which facts hold it: base64 of its deflated canonical form.

    Raises:
        InputError: as ``canonicalize``.
    """
    return b64encode(zlib.compress(canonicalize(definition), _LEVEL)).decode()


def unpack(packed: str) -> dict[str, Any]:
    """Return the definition that a fact holds.

    Raises:
        IntegrityError: ``unknown_fact`` where it is something else.
    """
    try:
        definition: dict[str, Any] = orjson.loads(zlib.decompress(b64decode(packed, validate=True)))
    except (ValueError, zlib.error):
        raise IntegrityError(
            "unknown_fact",
            "the binding topic holds a definition this version cannot read: run the version that wrote it",
        ) from None
    return definition
