"""References within one schema: followed by JSON pointer, never to another document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

Schema = Mapping[str, Any]

_STEPS_MAX = 32
"""References that may follow one another; real schemas have two."""


def expand(root: Any, schema: Schema) -> dict[str, Any] | None:
    """Return a schema with its reference followed; what stands beside a reference takes precedence.

    Args:
        root: the whole schema that pointers are relative to.
        schema: one schema of it, with or without ``$ref``.

    Returns:
        The schema without ``$ref``, or ``None`` where the reference leads outside, nowhere, or in a circle.
    """
    found = dict(schema)
    for _ in range(_STEPS_MAX):
        if "$ref" not in found:
            return found
        target = _lookup(root, found.pop("$ref"))
        if target is None:
            return None
        found = {**target, **found}
    return None


def _lookup(root: Any, reference: Any) -> Schema | None:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    target = root
    for token in unquote(reference[1:]).split("/")[1:] if reference != "#" else ():
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and name in target:
            target = target[name]
        elif isinstance(target, list) and name.isdecimal() and name.isascii() and int(name[:9]) < len(target):
            target = target[int(name[:9])]
        else:
            return None
    return target if isinstance(target, dict) and (reference == "#" or reference[1:2] == "/") else None
