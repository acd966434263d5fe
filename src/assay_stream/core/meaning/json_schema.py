"""Two JSON Schemas by meaning: what a caller may or must send, place by place.

1. Places are compared from the root on, without recursion, each pair of a reference's targets once, and no more of
   them than the limits allow: what is left then is told as ``comparison_cut_short``.
2. A reference is followed within its document where it differs; where it is the same, what it leads to is compared
   where that stands.
3. ``anyOf``, ``oneOf`` and ``allOf`` are sets. One that differs on either side is compared place by place.
4. A place that differs and whose meaning does not is ``schema_restated``: no difference goes without a code.

Source: JSON Schema draft 2020-12, Core, section 10, and Validation, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from assay_stream.core.digest import canonicalize
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.meaning.change import ABSENT, Change, member
from assay_stream.core.meaning.references import expand
from assay_stream.core.meaning.text import compare_texts
from assay_stream.core.meaning.values import VALUE_KEYWORDS, changed, compare_values, same

_SAYS_NOTHING = frozenset(("$schema", "$id", "$comment", "title", "description"))
"""Keywords that confine no value."""

_NAMED_PARTS = ("$defs", "definitions")
_ALTERNATIVES = ("anyOf", "oneOf")
_HANDLED = VALUE_KEYWORDS | {
    "$ref", "$schema", "title", "description", "properties", "required", "additionalProperties",
    "items", "prefixItems", "allOf", *_NAMED_PARTS, *_ALTERNATIVES,
}  # fmt: skip

# One object each, so that a pair of places is known again by identity.
_ANYTHING: dict[str, Any] = {}
_NOTHING: dict[str, Any] = {"not": {}}

_Place = tuple[str, Any, Any]


def compare_schemas(path: str, before: Any, after: Any) -> Iterator[Change]:
    """Yield the changes between two schemas.

    Args:
        path: where the schema stands in the definition: ``$.inputSchema``.
        before: the schema before, ``ABSENT`` where there was none.
        after: the schema after, in the same way.
    """
    if same(before, after):
        return
    silent = [
        side is ABSENT or (isinstance(side, dict) and side.keys() <= _SAYS_NOTHING) for side in (before, after)
    ]
    if silent[0] is not silent[1]:
        yield changed("schema_declared" if silent[0] else "schema_undeclared", path, before, after)
        if before is ABSENT or after is ABSENT:
            return
        before, after = (_only_silent(side) for side in (before, after))
        yield from (change for change in _Comparison(before, after).run(path) if change.path != path)
    else:
        yield from _Comparison(before, after).run(path)


def _only_silent(schema: Any) -> dict[str, Any]:
    schema = schema if isinstance(schema, dict) else {}
    return {name: value for name, value in schema.items() if name in _SAYS_NOTHING}


class _Comparison:
    """One comparison of two whole schemas."""

    def __init__(self, before: Any, after: Any) -> None:
        self._roots = before, after
        self._places: list[_Place] = []
        self._followed: set[tuple[Any, Any]] = set()

    def run(self, path: str) -> Iterator[Change]:
        self._places.append((path, *self._roots))
        for _ in range(DEFAULT_LIMITS.comparisons_max):
            if not self._places:
                return
            yield from self._compare(*self._places.pop())
        if self._places:
            yield changed("comparison_cut_short", path, ABSENT, ABSENT)

    def _compare(self, path: str, before: Any, after: Any) -> Iterator[Change]:
        if same(before, after):
            return
        was, now = _as_object(before), _as_object(after)
        if was is None or now is None:
            yield changed("schema_keyword_changed", path, before, after)
            return
        waiting, found = len(self._places), False
        for change in self._compare_objects(path, was, now):
            found = True
            yield change
        if not found and len(self._places) == waiting:
            yield changed("schema_restated", path, before, after)

    def _compare_objects(self, path: str, was: dict[str, Any], now: dict[str, Any]) -> Iterator[Change]:
        if not same(was.get("$ref", ABSENT), now.get("$ref", ABSENT)):
            pair = _target(was), _target(now)
            old, new = expand(self._roots[0], was), expand(self._roots[1], now)
            code = "schema_reference_changed" if old is None or new is None else "schema_restated"
            yield changed(code, f"{path}.$ref", was.get("$ref", ABSENT), now.get("$ref", ABSENT))
            if pair in self._followed:
                return
            self._followed.add(pair)
            if old is not None and new is not None:
                was, now = old, new
        if not same(was.get("$schema", ABSENT), now.get("$schema", ABSENT)):
            yield changed(
                "schema_dialect_changed", f"{path}.$schema", was.get("$schema", ABSENT), now.get("$schema", ABSENT)
            )
        for name in ("description", "title"):
            yield from compare_texts(
                f"parameter_{name}", f"{path}.{name}", was.get(name, ABSENT), now.get(name, ABSENT)
            )
        yield from compare_values(path, was, now)
        yield from self._compare_parameters(path, was, now)
        yield from self._compare_additional(path, was, now)
        yield from self._compare_sets(path, was, now)
        yield from self._compare_parts(path, was, now)
        for name in sorted((was.keys() | now.keys()) - _HANDLED):
            if not same(was.get(name, ABSENT), now.get(name, ABSENT)):
                yield changed(
                    "schema_keyword_changed", member(path, name), was.get(name, ABSENT), now.get(name, ABSENT)
                )

    def _later(self, path: str, before: Any, after: Any) -> None:
        if not same(before, after):
            self._places.append((path, before, after))

    def _compare_parameters(self, path: str, was: dict[str, Any], now: dict[str, Any]) -> Iterator[Change]:
        properties = [side.get("properties", {}) for side in (was, now)]
        required = [side.get("required", []) for side in (was, now)]
        if not all(isinstance(side, dict) for side in properties):
            yield from _keyword(path, "properties", was, now)
            properties = [{}, {}]
        if not all(_is_names(side) for side in required):
            yield from _keyword(path, "required", was, now)
            required = [[], []]
        (old, new), (must, will) = properties, (set(names) for names in required)
        for name in sorted(old.keys() | new.keys() | must | will):
            where = member(f"{path}.properties", name)
            if name in old and name not in new:
                code = f"parameter_removed_{'required' if name in must else 'optional'}"
                yield changed(code, where, old[name], ABSENT)
            elif name in new and name not in old:
                code = f"parameter_added_{'required' if name in will else 'optional'}"
                yield changed(code, where, ABSENT, new[name])
            else:
                if (name in must) is not (name in will):
                    code = f"parameter_made_{'required' if name in will else 'optional'}"
                    yield changed(code, where, name in must, name in will)
                self._later(where, old.get(name, ABSENT), new.get(name, ABSENT))

    def _compare_additional(self, path: str, was: dict[str, Any], now: dict[str, Any]) -> Iterator[Change]:
        name = "additionalProperties"
        before, after = was.get(name, ABSENT), now.get(name, ABSENT)
        openness = [_openness(side) for side in (before, after)]
        where = f"{path}.{name}"
        if None in openness:
            yield from _keyword(path, name, was, now)
        elif openness[0] != openness[1]:
            opened = (openness[0] or 0) < (openness[1] or 0)
            yield changed(f"additional_properties_{'opened' if opened else 'closed'}", where, before, after)
        elif openness[0] == 1:
            self._later(where, before, after)

    def _compare_sets(self, path: str, was: dict[str, Any], now: dict[str, Any]) -> Iterator[Change]:
        for name in (*_ALTERNATIVES, "allOf"):
            before, after = was.get(name, ABSENT), now.get(name, ABSENT)
            if same(before, after):
                continue
            where, is_all = f"{path}.{name}", name == "allOf"
            if is_all:
                before, after = ([] if side is ABSENT else side for side in (before, after))
            if not all(side is ABSENT or isinstance(side, list) for side in (before, after)):
                yield from _keyword(path, name, was, now)
            elif before is ABSENT or after is ABSENT:
                came = before is ABSENT
                yield changed(f"alternatives_{'introduced' if came else 'dropped'}", where, before, after)
            else:
                yield from self._compare_members(where, before, after, is_all)

    def _compare_members(self, path: str, before: list[Any], after: list[Any], is_all: bool) -> Iterator[Change]:
        was, now = ({canonicalize(each): index for index, each in enumerate(side)} for side in (before, after))
        gone = [before[was[form]] for form in sorted(was.keys() - now.keys())]
        come = [after[now[form]] for form in sorted(now.keys() - was.keys())]
        if len(gone) == len(come) == 1:
            index = min(was[canonicalize(gone[0])], now[canonicalize(come[0])])
            self._later(f"{path}[{index}]", gone[0], come[0])
            return
        for each in gone:
            yield changed("condition_dropped" if is_all else "alternative_removed", path, each, ABSENT)
        for each in come:
            yield changed("condition_added" if is_all else "alternative_added", path, ABSENT, each)

    def _compare_parts(self, path: str, was: dict[str, Any], now: dict[str, Any]) -> Iterator[Change]:
        for keyword in _NAMED_PARTS:
            parts = [side.get(keyword, {}) for side in (was, now)]
            if not all(isinstance(side, dict) for side in parts):
                yield from _keyword(path, keyword, was, now)
                continue
            for name in sorted(parts[0].keys() | parts[1].keys()):
                where = member(f"{path}.{keyword}", name)
                if name in parts[0] and name in parts[1]:
                    self._later(where, parts[0][name], parts[1][name])
                else:
                    code = f"schema_definition_{'removed' if name in parts[0] else 'added'}"
                    yield changed(code, where, parts[0].get(name, ABSENT), parts[1].get(name, ABSENT))
        lists = [_positions(side) for side in (was, now)]
        if None in lists:
            yield from _keyword(path, "prefixItems", was, now)
        else:
            old, new = (side or [] for side in lists)
            for index in range(max(len(old), len(new))):
                sides = [side[index] if index < len(side) else ABSENT for side in (old, new)]
                self._later(f"{path}.prefixItems[{index}]", *sides)
        rest = [side.get("items", ABSENT) for side in (was, now)]
        self._later(f"{path}.items", *(ABSENT if isinstance(side, list) else side for side in rest))


def _keyword(path: str, name: str, was: dict[str, Any], now: dict[str, Any]) -> Iterator[Change]:
    if not same(was.get(name, ABSENT), now.get(name, ABSENT)):
        yield changed("schema_keyword_changed", member(path, name), was.get(name, ABSENT), now.get(name, ABSENT))


def _as_object(schema: Any) -> dict[str, Any] | None:
    if schema is ABSENT or schema is True:
        return _ANYTHING
    if schema is False:
        return _NOTHING
    return schema if isinstance(schema, dict) else None


def _target(schema: dict[str, Any]) -> str | int:
    """Return what tells a schema among the places of one comparison: where it leads, or which object it is.

    What stands beside a reference counts as well, so only a bare one is told by where it leads.
    """
    return str(schema["$ref"]) if schema.keys() == {"$ref"} else id(schema)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _openness(additional: Any) -> int | None:
    """Return 0 where nothing more may be sent, 1 where a schema says what, 2 where anything."""
    if additional is ABSENT or additional is True or additional == {}:
        return 2
    if additional is False:
        return 0
    return 1 if isinstance(additional, dict) else None


def _positions(schema: dict[str, Any]) -> list[Any] | None:
    """Return the schemas by position: ``prefixItems``, or ``items`` as a list, as older drafts have it."""
    listed = schema.get("prefixItems", schema["items"] if isinstance(schema.get("items"), list) else [])
    return listed if isinstance(listed, list) else None
