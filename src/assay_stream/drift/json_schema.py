"""Compare two JSON Schemas by meaning: what a caller may or must send, place by place.

1. Places are compared from the root on, without recursion, each pair of a reference's targets once, and no more of
   them than the budget allows.
2. A reference is followed within its document where it differs; where it is the same, its target is compared where
   that stands.
3. ``anyOf``, ``oneOf`` and ``allOf`` are sets. One that differs on either side is compared place by place. A schema
   that stays as one of several alternatives is itself unchanged.
4. Null allowed by ``anyOf`` or ``oneOf``, and null among the types, are equivalent: the rest is compared as it stands.
5. A place that differs without a change of meaning is ``schema_restated``: no difference goes without a code.
6. If all differences are decisions of a generator, they are one change, ``schema_regenerated`` (``regenerated``).

Source: JSON Schema draft 2020-12, Core, section 10, and Validation, section 6.

Only changes that concern no named parameter may be folded: the dialect, whether unnamed parameters are allowed, shared
parts that were inlined or extracted, another form of the same, and whether null may be sent for optional values.
Words are never folded, and a single change of any other kind keeps all of them apart: nothing hides behind this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any
from urllib.parse import unquote

from assay_stream.drift.change import ABSENT, CODES, Change, Path, changed, sorted_names
from assay_stream.drift.equality import Values
from assay_stream.drift.values import VALUE_KEYWORDS, compare_texts, compare_values
from assay_stream.work import Work, WorkExhaustedError

Schema = Mapping[str, Any]

_STEPS_MAX = 32
"""Maximum length of a chain of references; real schemas have two."""

_STEP_UNITS = 40
_UNITS_PER_CHAR = 5
"""Units of work per character of a reference; escaped ones cost most."""


def expand(root: Any, schema: Schema, work: Work) -> dict[str, Any] | None:
    """Return a schema with its reference followed, ``None`` where that leads outside, nowhere, or in a circle."""
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


_UNNAMED = frozenset(("additional_properties_opened", "additional_properties_closed"))
_SAME = frozenset(("schema_restated", "bounds_restated", "schema_dialect_changed"))
_FORMS = _UNNAMED | _SAME | {"schema_definition_added", "schema_definition_removed", "null_allowed", "null_refused"}
_DEFAULTS = frozenset(("default_added", "default_removed"))
_WORDS = ("parameter_description_", "parameter_title_")
_ANNOTATIONS = frozenset(("title", "description", "default", "examples", "deprecated", "$comment"))
_NULL = {"type": "null"}
_CODE = "schema_regenerated"


def folded(path: Path, changes: Iterator[Change]) -> Iterator[Change]:
    """Yield the changes of one schema, with all generator decisions folded into one where nothing else changed.

    Args:
        path: of the schema.
    """
    forms: list[Change] = []
    is_foldable = True
    try:
        for change in changes:
            if change.code.startswith(_WORDS):
                yield change
            elif is_foldable and _is_form(change):
                forms.append(change)
            else:
                yield from forms
                forms.clear()
                is_foldable = False
                yield change
    except WorkExhaustedError:
        yield from forms
        raise
    codes = {change.code for change in forms}
    if codes & _UNNAMED or (len(codes) > 1 and codes - _SAME):
        yield Change(_CODE, str(path), None, None, CODES[_CODE].direction)
    else:
        yield from forms


def _is_form(change: Change) -> bool:
    if change.code in _DEFAULTS:
        return change.before is None and change.after is None  # The default is null.
    if change.code in _UNNAMED:
        # Where a schema says what unnamed parameters are, they are no longer unnamed.
        return all(side is None or isinstance(side, bool) or side == {} for side in (change.before, change.after))
    return change.code in _FORMS


def without_null(
    before: dict[str, Any], after: dict[str, Any]
) -> tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]:
    """Return how each of two schemas allows null, ``""`` where it does not, and the rest of it.

    Where both do it in the same form, or neither does, they are returned unchanged. A default of null goes with
    the null where the other schema has none.
    """
    (form, was), (other, now) = _null_of(before), _null_of(after)
    if form == other or not all(each or _refuses_null(side) for each, side in ((form, before), (other, after))):
        return ("", before), ("", after)
    if not other and "default" not in now and was.get("default", ABSENT) is None:
        was = {name: value for name, value in was.items() if name != "default"}
    if not form and "default" not in was and now.get("default", ABSENT) is None:
        now = {name: value for name, value in now.items() if name != "default"}
    return (form, was), (other, now)


def _null_of(schema: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    for keyword in ("anyOf", "oneOf"):
        members = schema.get(keyword)
        if isinstance(members, list) and len(members) == 2 and _NULL in members:
            inner = members[members[0] == _NULL]
            beside = {name: value for name, value in schema.items() if name != keyword}
            if isinstance(inner, dict) and inner != _NULL and inner.keys() & beside.keys() <= _ANNOTATIONS:
                return keyword, inner | beside
    kinds = schema.get("type")
    if isinstance(kinds, list) and "null" in kinds and len(kinds) > 1:
        others = [kind for kind in kinds if kind != "null"]
        rest = schema | {"type": others[0] if len(others) == 1 else others}
        if isinstance(schema.get("enum"), list):
            rest["enum"] = [each for each in schema["enum"] if each is not None]
        return "type", rest
    return "", schema


def _refuses_null(schema: dict[str, Any]) -> bool:
    """Return True if a schema that allows null in neither form states types or refers to a schema that does."""
    return ("type" in schema or "$ref" in schema) and not schema.keys() & {"anyOf", "oneOf"}


_SAYS_NOTHING = frozenset(("$schema", "$id", "$comment", "title", "description"))
"""Keywords that do not constrain values."""

_NAMED_PARTS = ("$defs", "definitions")
_ALTERNATIVES = ("anyOf", "oneOf")
_HANDLED = VALUE_KEYWORDS | {
    "$ref", "$schema", "title", "description", "properties", "required", "additionalProperties",
    "items", "prefixItems", "allOf", *_NAMED_PARTS, *_ALTERNATIVES,
}  # fmt: skip

_NOT_COMPARED = frozenset((
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "propertyNames", "patternProperties",
    "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties",
    "additionalItems", "nullable", "discriminator", "id", "$id", "$anchor", "$dynamicAnchor", "$dynamicRef",
    "$recursiveAnchor", "$recursiveRef", "$vocabulary", "extends", "disallow", "divisibleBy", "x-mcp-header",
))  # fmt: skip
"""What constrains values. Any other keyword that is not handled is an annotation (JSON Schema 2020-12, Core, 6.5)."""
_ANY_NAME = {"type": "string"}
"""What generators state of names: each of them is a string."""

# One object each, so that a pair of places is known again by identity, and looked at once.
_EMPTY: list[Any] = []
_ANYTHING: dict[str, Any] = {}
_NOTHING: dict[str, Any] = {"not": {}}

_Object = dict[str, Any]
_Place = tuple[Path, Any, Any]

_PLACE_UNITS = 180
_CHARS_PER_UNIT = 32
_ITEM_UNITS = 8
"""Units of work per item of a list that is compared with another."""


def compare_schemas(path: Path, before: Any, after: Any, values: Values) -> Iterator[Change]:
    if values.same(before, after):
        return
    silent = [side is ABSENT or (isinstance(side, dict) and side.keys() <= _SAYS_NOTHING) for side in (before, after)]
    if silent[0] is silent[1]:
        yield from folded(path, _Comparison(before, after, values).run(path))
        return
    yield changed("schema_declared" if silent[0] else "schema_undeclared", path, before, after, values)
    if before is ABSENT or after is ABSENT:
        return
    before, after = (
        {name: side[name] for name in _SAYS_NOTHING if name in side} if isinstance(side, dict) else {}
        for side in (before, after)
    )
    for change in _Comparison(before, after, values).run(path):
        if change.path != str(path):
            yield change


def _bare(schema: _Object) -> _Object:
    return {name: value for name, value in schema.items() if name not in _ANNOTATIONS}


class _Comparison:
    def __init__(self, before: Any, after: Any, values: Values) -> None:
        self._roots = before, after
        self._values = values
        self._places: list[_Place] = []
        self._followed: set[tuple[Any, Any]] = set()
        self._made: list[_Object] = []
        """Temporary objects, kept alive so that their ids are not reused."""

    def run(self, path: Path) -> Iterator[Change]:
        self._places.append((path, *self._roots))
        while self._places:
            self._values.work.spend(_PLACE_UNITS)
            yield from self._compare(*self._places.pop())

    def _compare(self, path: Path, before: Any, after: Any) -> Iterator[Change]:
        if self._values.same(before, after):
            return
        was, now = _as_object(before), _as_object(after)
        if was is None or now is None:
            yield self._changed("schema_keyword_changed", path, before, after)
            return
        waiting, found = len(self._places), False
        for change in self._compare_objects(path, was, now):
            found = True
            yield change
        if not found and len(self._places) == waiting:
            yield self._changed("schema_restated", path, before, after)

    def _changed(self, code: str, path: Path, before: Any, after: Any) -> Change:
        return changed(code, path, before, after, self._values)

    def _compare_objects(self, path: Path, was: _Object, now: _Object) -> Iterator[Change]:
        before, after = was, now
        (form, was), (other, now) = without_null(was, now)
        if form != other:
            self._made += [was, now]
            self._values.work.spend(len(was) + len(now))
            if not form or not other:
                yield self._changed("null_refused" if form else "null_allowed", path, before, after)
        for code, narrow, wide in (("alternative_added", was, now), ("alternative_removed", now, was)):
            keyword = self._holds(wide, narrow)
            if keyword is not None:
                sides = was.get(keyword, ABSENT), now.get(keyword, ABSENT)
                yield self._changed(code, path.keyword(keyword), *sides)
                was, now = ({name: side[name] for name in side if name in _ANNOTATIONS} for side in (was, now))
                self._made += [was, now]
                break
        references = was.get("$ref", ABSENT), now.get("$ref", ABSENT)
        if not self._values.same(*references):
            pair = _target(was), _target(now)
            old, new = (expand(*each, self._values.work) for each in zip(self._roots, (was, now), strict=True))
            code = "schema_reference_changed" if old is None or new is None else "schema_restated"
            yield self._changed(code, path.keyword("$ref"), *references)
            if pair in self._followed:
                return
            self._followed.add(pair)
            if old is not None and new is not None:
                was, now = old, new
        yield from self._compare_keyword(path, "$schema", was, now, "schema_dialect_changed")
        for name in ("description", "title"):
            if name in was or name in now:
                sides = was.get(name, ABSENT), now.get(name, ABSENT)
                yield from compare_texts(f"parameter_{name}", path.keyword(name), *sides, self._values)
        yield from compare_values(path, was, now, self._values)
        yield from self._compare_parameters(path, was, now)
        yield from self._compare_additional(path, was, now)
        yield from self._compare_sets(path, was, now)
        yield from self._compare_parts(path, was, now)
        yield from self._compare_positions(path, was, now)
        for name in sorted_names(self._values, was.keys() - _HANDLED, now.keys() - _HANDLED):
            if name == "propertyNames" and all(side.get(name, _ANY_NAME) == _ANY_NAME for side in (was, now)):
                continue
            code = "schema_keyword_changed" if name in _NOT_COMPARED else "schema_annotation_changed"
            yield from self._compare_keyword(path, name, was, now, code)

    def _holds(self, schema: _Object, one: _Object) -> str | None:
        """Return the keyword by which a schema is nothing but alternatives, of which one is another schema."""
        keyword = next((name for name in _ALTERNATIVES if name in schema), "")
        listed, bare = schema.get(keyword), _bare(one)
        if not isinstance(listed, list) or not bare or _bare(schema).keys() != {keyword} or keyword in one:
            return None
        for each in listed:
            if isinstance(each, dict):
                self._values.work.spend(_ITEM_UNITS * (1 + len(each)))
                pair = bare, _bare(each)
                self._made += pair
                if self._values.same(*pair):
                    return keyword
        return None

    def _compare_keyword(
        self, path: Path, name: str, was: _Object, now: _Object, code: str = "schema_keyword_changed"
    ) -> Iterator[Change]:
        """Yield the change of a keyword that is compared as a whole."""
        before, after = was.get(name, ABSENT), now.get(name, ABSENT)
        if not self._values.same(before, after):
            where = path.keyword(name) if name == "$schema" else path.member(name)
            yield self._changed(code, where, before, after)

    def _later(self, path: Path, before: Any, after: Any) -> None:
        if not self._values.same(before, after):
            self._places.append((path, before, after))

    def _compare_parameters(self, path: Path, was: _Object, now: _Object) -> Iterator[Change]:
        properties = [side.get("properties", _ANYTHING) for side in (was, now)]
        required = [side.get("required", _EMPTY) for side in (was, now)]
        if not all(isinstance(side, dict) for side in properties):
            yield from self._compare_keyword(path, "properties", was, now)
            properties = [_ANYTHING, _ANYTHING]
        if not all(self._is_names(side) for side in required):
            yield from self._compare_keyword(path, "required", was, now)
            required = [_EMPTY, _EMPTY]
        if self._values.same(*properties) and self._values.same(*required):
            return
        (old, new), (must, will) = properties, (set(names) for names in required)
        parameters = path.keyword("properties")
        for name in sorted_names(self._values, old, new, must, will):
            where = parameters.member(name)
            if name in old and name not in new:
                code = f"parameter_removed_{'required' if name in must else 'optional'}"
                yield self._changed(code, where, old[name], ABSENT)
            elif name in new and name not in old:
                code = f"parameter_added_{'required' if name in will else 'optional'}"
                yield self._changed(code, where, ABSENT, new[name])
            else:
                if (name in must) is not (name in will):
                    code = f"parameter_made_{'required' if name in will else 'optional'}"
                    yield self._changed(code, where, name in must, name in will)
                self._later(where, old.get(name, ABSENT), new.get(name, ABSENT))

    def _is_names(self, value: Any) -> bool:
        if not isinstance(value, list):
            return False
        self._values.work.spend(len(value))
        if not all(isinstance(name, str) for name in value):
            return False
        self._values.work.spend(sum(map(len, value)) // _CHARS_PER_UNIT)
        return True

    def _compare_additional(self, path: Path, was: _Object, now: _Object) -> Iterator[Change]:
        name = "additionalProperties"
        before, after = was.get(name, ABSENT), now.get(name, ABSENT)
        openness = [_openness(side) for side in (before, after)]
        where = path.keyword(name)
        if None in openness:
            yield from self._compare_keyword(path, name, was, now)
        elif openness[0] != openness[1]:
            opened = (openness[0] or 0) < (openness[1] or 0)
            code = f"additional_properties_{'opened' if opened else 'closed'}"
            yield self._changed(code, where, before, after)
        elif openness[0] == 1:
            self._later(where, before, after)

    def _compare_sets(self, path: Path, was: _Object, now: _Object) -> Iterator[Change]:
        for name in (*_ALTERNATIVES, "allOf"):
            before, after = was.get(name, ABSENT), now.get(name, ABSENT)
            if self._values.same(before, after):
                continue
            where, is_all = path.keyword(name), name == "allOf"
            if is_all:
                before, after = (_EMPTY if side is ABSENT else side for side in (before, after))
            if not all(side is ABSENT or isinstance(side, list) for side in (before, after)):
                yield from self._compare_keyword(path, name, was, now)
            elif before is ABSENT or after is ABSENT:
                came = before is ABSENT
                yield self._changed(f"alternatives_{'introduced' if came else 'dropped'}", where, before, after)
            else:
                yield from self._compare_members(where, before, after, is_all)

    def _compare_members(self, path: Path, before: list[Any], after: list[Any], is_all: bool) -> Iterator[Change]:
        values = self._values
        values.work.spend(_ITEM_UNITS * (len(before) + len(after)))
        was, now = ({values.class_of(each): index for index, each in enumerate(side)} for side in (before, after))
        gone = [index for kind, index in was.items() if kind not in now]
        come = [index for kind, index in now.items() if kind not in was]
        if len(gone) == len(come) == 1:
            self._later(path.item(min(gone[0], come[0])), before[gone[0]], after[come[0]])
            return
        for each in sorted((before[index] for index in gone), key=values.form):
            yield self._changed("condition_dropped" if is_all else "alternative_removed", path, each, ABSENT)
        for each in sorted((after[index] for index in come), key=values.form):
            yield self._changed("condition_added" if is_all else "alternative_added", path, ABSENT, each)

    def _compare_parts(self, path: Path, was: _Object, now: _Object) -> Iterator[Change]:
        for keyword in _NAMED_PARTS:
            old, new = (side.get(keyword, _ANYTHING) for side in (was, now))
            if self._values.same(old, new):
                continue
            if not isinstance(old, dict) or not isinstance(new, dict):
                yield from self._compare_keyword(path, keyword, was, now)
                continue
            parts = path.keyword(keyword)
            for name in sorted_names(self._values, old, new):
                where = parts.member(name)
                if name in old and name in new:
                    self._later(where, old[name], new[name])
                else:
                    code = f"schema_definition_{'removed' if name in old else 'added'}"
                    yield self._changed(code, where, old.get(name, ABSENT), new.get(name, ABSENT))

    def _compare_positions(self, path: Path, was: _Object, now: _Object) -> Iterator[Change]:
        old, new = (_positions(side) for side in (was, now))
        if old is None or new is None:
            yield from self._compare_keyword(path, "prefixItems", was, now)
        elif not self._values.same(old, new):
            self._values.work.spend(_ITEM_UNITS * (len(old) + len(new)))
            items = path.keyword("prefixItems")
            for index, sides in enumerate(zip_longest(old, new, fillvalue=ABSENT)):
                self._later(items.item(index), *sides)
        rest = [side.get("items", ABSENT) for side in (was, now)]
        self._later(path.keyword("items"), *(ABSENT if isinstance(side, list) else side for side in rest))


def _as_object(schema: Any) -> dict[str, Any] | None:
    if schema is ABSENT or schema is True:
        return _ANYTHING
    if schema is False:
        return _NOTHING
    return schema if isinstance(schema, dict) else None


def _target(schema: _Object) -> str | int:
    """Return the identity of a schema within one comparison: where it leads, or which object it is.

    Keywords beside a reference count as well, so only a bare one is identified by its target.
    """
    reference = schema.get("$ref")
    return reference if len(schema) == 1 and isinstance(reference, str) else id(schema)


def _openness(additional: Any) -> int | None:
    """Return 0 if no more members may be sent, 1 if a schema restricts them, 2 if any may."""
    if additional is ABSENT or additional is True or additional == {}:
        return 2
    if additional is False:
        return 0
    return 1 if isinstance(additional, dict) else None


def _positions(schema: dict[str, Any]) -> list[Any] | None:
    """Return the schemas by position: ``prefixItems``, or ``items`` as a list, as in older drafts."""
    listed = schema.get("prefixItems", schema["items"] if isinstance(schema.get("items"), list) else _EMPTY)
    return listed if isinstance(listed, list) else None
