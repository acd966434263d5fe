"""Pairs of definitions made to cost as much as they can: one class of attack each, at the size asked for."""

from collections.abc import Callable
from typing import Any

Definition = dict[str, Any]
Pair = tuple[Definition, Definition]
Tools = list[Definition]


def _schemas(before: Any, after: Any) -> Pair:
    return {"name": "t", "inputSchema": before}, {"name": "t", "inputSchema": after}


def _texts(before: str, after: str) -> Pair:
    return {"name": "t", "description": before}, {"name": "t", "description": after}


def chain_beside_enum(size: int) -> Pair:
    """References that follow one another, each beside one wide list of values and under another name."""
    hops, wide = 31, [str(number) for number in range(size // 500)]

    def side(mark: str) -> Definition:
        parts = {f"{mark}{hop}": {"$ref": f"#/$defs/{mark}{hop + 1}", "enum": wide} for hop in range(hops)}
        return {"$defs": {**parts, f"{mark}{hops}": {"enum": [*wide, mark]}}, **_users(mark, size // 60)}

    return _schemas(side("a"), side("b"))


def chain_beside_object(size: int) -> Pair:
    hops, wide = 30, {f"k{number}": number for number in range(size // 30)}

    def side(mark: str) -> Definition:
        parts = {f"{mark}{hop}": {"$ref": f"#/$defs/{mark}{hop + 1}"} for hop in range(hops)}
        return {"$defs": {**parts, f"{mark}{hops}": wide | {mark: 1}}, **_users(mark, size // 60)}

    return _schemas(side("a"), side("b"))


def _users(mark: str, count: int) -> Definition:
    return {"properties": {f"p{number}": {"$ref": f"#/$defs/{mark}0", "x": number} for number in range(count)}}


def references_to_one_enum(size: int) -> Pair:
    """Many places whose references lead, by a few steps, to one very wide list of values; under two names."""
    hops, wide = 8, list(range(size // 12))

    def side(mark: str) -> Definition:
        parts = {f"{mark}{hop}": {"$ref": f"#/$defs/{mark}{hop + 1}"} for hop in range(hops)}
        return {"$defs": {**parts, f"{mark}{hops}": {"enum": [*wide, mark]}}, **_users(mark, size // 90)}

    return _schemas(side("a"), side("b"))


def references_to_one_list(size: int) -> Pair:
    """Many places that refer to one long list of types, of names, or of alternatives, under two names."""
    names = [f"n{number % 7}" for number in range(size // 20)]

    def side(mark: str) -> Definition:
        part = {"required": [*names, mark], "type": ["string"] * (size // 40), "anyOf": [{"x": mark}] * (size // 60)}
        return {"$defs": {mark: part}, **_users_of(mark, size // 80)}

    return _schemas(side("a"), side("b"))


def _users_of(mark: str, count: int) -> Definition:
    return {"properties": {f"p{number}": {"$ref": f"#/$defs/{mark}", "x": number} for number in range(count)}}


def references_to_long_texts(size: int) -> Pair:
    """Many places that refer to one long text, equal but for its end."""
    side = [
        {"$defs": {mark: {"description": "x" * (size // 4) + mark}}, **_users_of(mark, size // 60)} for mark in "ab"
    ]
    return _schemas(*side)


def references_to_long_names(size: int) -> Pair:
    """Many places that refer to one object with a few long names that begin alike."""
    names = [f"{'n' * (size // 200)}{number}" for number in range(100)]
    side = [
        {"$defs": {mark: {"properties": {name: {"const": mark} for name in names}}}, **_users_of(mark, size // 80)}
        for mark in "ab"
    ]
    return _schemas(*side)


def long_references(size: int) -> Pair:
    side = [
        {"properties": {f"p{n}": {"$ref": f"#/{mark}" + "%41" * (size // 300)} for n in range(100)}} for mark in "ab"
    ]
    return _schemas(*side)


def rings(size: int) -> Pair:
    """Rings of references of two lengths: as many pairs as the product of the lengths."""
    count = size // 60
    return _schemas(_ring(count, "$defs"), _ring(count + 1, "definitions"))


def _ring(size: int, keyword: str) -> Definition:
    parts = {
        f"d{number}": {"properties": {"n": {"$ref": f"#/{keyword}/d{(number + 1) % size}"}}} for number in range(size)
    }
    return {keyword: parts, "$ref": f"#/{keyword}/d0"}


def true_and_one(size: int) -> Pair:
    def side(value: Any) -> Any:
        schema: Any = {"const": value}
        for _ in range(110):
            schema = {"items": schema, "x": [value] * (size // 240)}
        return schema

    return _schemas(side(True), side(1))


def deep_leaf(size: int) -> Pair:
    """One difference at the bottom, much that is equal at every level."""

    def side(leaf: str) -> Any:
        schema: Any = {"type": leaf}
        for _ in range(50):
            schema = {"properties": {"a": {"enum": list(range(size // 300))}, "z": schema}}
        return schema

    return _schemas(side("string"), side("integer"))


def long_names_above_a_list(size: int) -> Pair:
    """A list that differs everywhere, under names that make its paths long."""

    def side(leaf: Any) -> Any:
        schema: Any = {"prefixItems": [{"const": leaf}] * (size // 40)}
        for level in range(50):
            schema = {"properties": {f"\u00e9{level}" * 30: schema}}
        return schema

    return _schemas(side(0), side(1))


def long_paths_to_bare_elements(size: int) -> Pair:
    """A list of elements of two bytes, all other ones, under names that take three times their bytes as a path."""

    def side(leaf: int) -> Any:
        schema: Any = {"prefixItems": [leaf] * (size // 4)}
        for level in range(min(55, size // 1_200)):
            schema = {"properties": {"\U0001f600" * 126 + chr(65 + level): schema}}
        return schema

    return _schemas(side(0), side(1))


def long_name(size: int) -> Pair:
    side = [{"properties": {"n" * (size // 2): {"prefixItems": [{"const": mark}] * (size // 40)}}} for mark in "ab"]
    return _schemas(*side)


def lists_of_schemas(size: int) -> Pair:
    return _schemas(*({"prefixItems": [{"const": mark}] * (size // 14)} for mark in (0, 1)))


def expanding_text(size: int) -> Pair:
    return _texts("\ufdfa" * (size // 3), "\ufdfa" * (size // 3) + "x")


def marks(size: int) -> Pair:
    """A run of combining marks in the order that takes longest to sort."""
    return _texts("a" + "\u0f73" * (size // 3), "b" + "\u0f73" * (size // 3))


def short_words(size: int) -> Pair:
    return _texts("a " * (size // 2), "b " * (size // 2))


def distinct_words(size: int) -> Pair:
    words = [_word(number) for number in range(size // 5)]
    return _texts(" ".join(words), " ".join(reversed(words)))


def _word(number: int) -> str:
    letters = ""
    for _ in range(4):
        number, letter = divmod(number, 26)
        letters += chr(97 + letter)
    return letters


def punctuation(size: int) -> Pair:
    return _texts("\u3001\u3002 " * (size // 7), "\u3002\u3001 " * (size // 7) + "x")


def one_long_word(size: int) -> Pair:
    return _texts("a" * size, "a" * (size - 1) + "b")


def empty_strings(size: int) -> Pair:
    empty = [""] * (size // 6)
    return _schemas({"required": empty, "enum": empty}, {"required": ["", *empty], "enum": [*empty, "x"]})


def fractions(size: int) -> Pair:
    return _schemas(*({"enum": [number + mark for number in range(size // 9)]} for mark in (0.25, 0.5)))


def escapes(size: int) -> Pair:
    return _schemas(*({"enum": ["\x01" * 30] * (size // 200) + [mark]} for mark in (0.25, 0.5)))


def alternatives(size: int) -> Pair:
    return _schemas(*({"anyOf": [{"const": number + mark} for number in range(size // 20)]} for mark in (0.25, 0.5)))


def parameters(size: int) -> Pair:
    return _schemas(
        *({"properties": {f"p{n}": {"type": kind} for n in range(size // 28)}} for kind in ("null", "array"))
    )


def other_parameters(size: int) -> Pair:
    return _schemas(*({"properties": {f"{mark}{n}": 0.5 for n in range(size // 12)}} for mark in "ab"))


def hints(size: int) -> Pair:
    return tuple({"name": "t", "annotations": {f"h{n}": mark for n in range(size // 12)}} for mark in (0, 1))  # type: ignore[return-value]


def metadata(size: int) -> Pair:
    return tuple({"name": "t", "_meta": {f"h{n}": [mark] for n in range(size // 14)}} for mark in (0.5, 1.5))  # type: ignore[return-value]


def arguments(size: int) -> Pair:
    return tuple(  # type: ignore[return-value]
        {"name": "t", "arguments": [{"name": f"a{n}", "x": mark} for n in range(size // 28)]} for mark in (0, 1)
    )


def containers(size: int) -> Pair:
    return _schemas(*({"x": [[] for _ in range(size // 3)] + [mark]} for mark in (0, 1)))


def nested_alternatives(size: int) -> Pair:
    """Alternatives within alternatives, each level with something wide beside the one that differs."""

    def side(leaf: int) -> Any:
        schema: Any = {"const": leaf}
        for _ in range(50):
            schema = {"anyOf": [{"enum": list(range(size // 300))}, schema]}
        return schema

    return _schemas(side(0), side(1))


def colliding_numbers(size: int) -> Pair:
    powers = [2.0 ** (61 * power) for power in range(16)]
    lists = [[a, b, c, d] for a in powers for b in powers for c in powers for d in powers]
    return _schemas(*({"enum": [*lists[: size // 60], mark]} for mark in (0, 1)))


def fields(size: int) -> Pair:
    """As many fields of a definition as there is room for, all of names that no standard has."""
    return tuple({"name": "t", **{f"x{n}": mark for n in range(size // 12)}} for mark in (0.5, 1.5))  # type: ignore[return-value]


PAIRS: dict[str, Callable[[int], Pair]] = {
    build.__name__: build
    for build in (
        chain_beside_enum, chain_beside_object, references_to_one_enum, references_to_one_list,
        references_to_long_texts, references_to_long_names, long_references, rings, true_and_one, deep_leaf,
        long_names_above_a_list, long_paths_to_bare_elements, long_name, lists_of_schemas, expanding_text,
        marks, short_words, distinct_words, punctuation, one_long_word, empty_strings, fractions, escapes,
        alternatives, parameters, other_parameters, hints, metadata, arguments, containers, nested_alternatives,
        colliding_numbers, fields,
    )
}  # fmt: skip
"""Two definitions each."""
