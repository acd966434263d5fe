"""Indicators in the structure of schemas: what a caller's software does with values, whatever their words say.

1. ``secret_in_header``: ``x-mcp-header`` makes a client send a parameter's value as an HTTP header as well (MCP
   2026-07-28, SEP-2243). Headers pass proxies and logs that never see the body, and no redaction of it.
2. ``external_reference``: ``$ref`` leads to another document. Fetching it contacts a host of the server's
   choice, and its content may change at any time (JSON Schema 2020-12, Core, 8.2 and 9.1.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urldefrag, urljoin

from assay_stream.canonical.redaction import is_sensitive_name
from assay_stream.detect.catalog import LEVELS
from assay_stream.detect.match import Match
from assay_stream.detect.surfaces import Place
from assay_stream.work import Work

_SCHEMAS = ("inputSchema", "input_schema", "outputSchema", "output_schema")
_HEADER = "x-mcp-header"
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_TELLING = frozenset((_HEADER, *_REFERENCES))
_NAMES_TO_SCHEMAS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_CONTAINERS = (dict, list)
_DATA = frozenset(("default", "const", "enum", "examples"))
"""Keywords that hold values, not schemas."""
_NO_TEXT = frozenset(("integer", "number", "boolean", "null"))
_META_SCHEMAS = ("https://json-schema.org/draft", "http://json-schema.org/draft")
"""Bundled with every validator, which never fetches them."""
_UNITS_PER_MEMBER = 5
_UNITS_PER_MATCH = 150


def structural_matches(before: Mapping[str, Any] | None, after: Mapping[str, Any], work: Work) -> list[Match]:
    """Return the matches in the schemas of a definition that those of the older one did not have.

    Args:
        before: the older definition, ``None`` where there was none.
        work: the budget of the definition.

    Raises:
        WorkExhaustedError: if the budget does not suffice.
    """
    found = list(_matches(after, work))
    if found and before is not None:
        known = {(match.rule, match.key) for match in _matches(before, work)}
        found = [match for match in found if (match.rule, match.key) not in known]
    return found


def _matches(definition: Mapping[str, Any], work: Work) -> Iterator[Match]:
    for name in _SCHEMAS:
        root = definition.get(name)
        if isinstance(root, Mapping):
            places = list(_schemas(root, (None, name), work))
            if not any(schema.keys() & _TELLING for _, schema in places):
                continue
            base = _text(root.get("$id"))
            documents = _documents(base, places, work)
            for place, schema in places:
                yield from _header(place, schema, work)
                yield from _external(place, schema, base, documents, work)


def _schemas(root: Mapping[str, Any], at: Place, work: Work) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """Yield every schema within a schema, with its place."""
    pending: list[tuple[Place, Any, bool]] = [(at, root, True)]
    while pending:
        place, value, is_schema = pending.pop()
        work.spend(_UNITS_PER_MEMBER * (1 + len(value)))
        if isinstance(value, dict):
            if is_schema:
                yield place, value
            for key, inner in value.items():
                if isinstance(inner, _CONTAINERS) and not (is_schema and key in _DATA):
                    pending.append(((place, str(key)), inner, not (is_schema and key in _NAMES_TO_SCHEMAS)))
        else:
            pending.extend(((place, n), each, True) for n, each in enumerate(value) if isinstance(each, _CONTAINERS))


def _header(place: Place, schema: Mapping[str, Any], work: Work) -> Iterator[Match]:
    header = schema.get(_HEADER)
    if not isinstance(header, str) or place is None:
        return
    work.spend(_UNITS_PER_MATCH)
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _NO_TEXT:
        return
    named = any(is_sensitive_name(name) for name in (str(place[1]), header))
    if named or schema.get("writeOnly") is True or schema.get("format") == "password":
        key = (str(place[1]), header)
        level = LEVELS["secret_in_header"]
        yield Match("secret_in_header", level, header, 0, len(header), key, (place, _HEADER))


def _documents(base: str, places: Sequence[tuple[Place, Mapping[str, Any]]], work: Work) -> frozenset[str]:
    """Return the addresses of a schema and of its parts, as set by ``$id``; ``""`` where there is none."""
    own = [name for _, schema in places if (name := _text(schema.get("$id")))]
    work.spend(sum(len(base) + len(name) for name in own))
    return frozenset(_resolved(base, name) for name in own) | {base}


def _external(
    place: Place, schema: Mapping[str, Any], base: str, documents: frozenset[str], work: Work
) -> Iterator[Match]:
    for keyword in _REFERENCES:
        target = schema.get(keyword)
        if not isinstance(target, str) or target.startswith(("#", *_META_SCHEMAS)):
            continue
        work.spend(_UNITS_PER_MATCH + len(base) + len(target))
        if _resolved(base, target) not in documents:
            level = LEVELS["external_reference"]
            yield Match("external_reference", level, target, 0, len(target), (target,), (place, keyword))


def _resolved(base: str, reference: str) -> str:
    """Return the address of the document that a reference leads to."""
    try:
        return urldefrag(urljoin(base, reference)).url
    except ValueError:
        return reference  # No address at all, so not that of a part.


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
