"""References within one schema: followed by JSON pointer, never to another document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from assay_stream.work import Work

Schema = Mapping[str, Any]

_STEPS_MAX = 32
"""Maximum length of a chain of references; real schemas have two."""

_STEP_UNITS = 40
_UNITS_PER_CHAR = 5
"""Units of work per character of a reference; escaped ones cost most."""


def expand(root: Any, schema: Schema, work: Work) -> dict[str, Any] | None:
    """Return a schema with its reference followed; keywords beside a reference take precedence.

    Returns:
        The schema without ``$ref``, or ``None`` where the reference leads outside, nowhere, or in a circle.

    Raises:
        WorkExhaustedError: if the budget is used up.
    """
    # Followed first and merged once: a merge at every step would copy what stands beside the first as often.
    layers = [schema]
    while "$ref" in layers[-1]:
        target = _lookup(root, layers[-1]["$ref"], work)
        if target is None or len(layers) == _STEPS_MAX:
            return None
        layers.append(target)
    found: dict[str, Any] = {}
    for layer in reversed(layers):
        work.spend(len(layer))
        found.update(layer)
    found.pop("$ref", None)
    return found


def _lookup(root: Any, reference: Any, work: Work) -> Schema | None:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    work.spend(_STEP_UNITS + _UNITS_PER_CHAR * len(reference))
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
