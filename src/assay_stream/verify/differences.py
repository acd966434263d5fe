"""Where two records of evidence differ, as JSON paths, and what each path means as a code (``differences.toml``).

Paths name members of our own records only: an unknown member is named by the object it stands in, since its name may be
anything.
"""

import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import resources
from typing import Any

_SPLIT = frozenset({"$.data", "$.data.binding"})
_CODES: dict[str, dict[str, str]] = tomllib.loads(
    resources.files(__package__).joinpath("differences.toml").read_text("utf-8")
)
_ENVELOPE, _DATA, _BINDING = _CODES["envelope"], _CODES["data"], _CODES["binding"]
_FROM_LOGS = frozenset(
    {"unbound_reason_differs", "digest_differs", "pin_differs", "signature_differs", "binding_differs"}
)
_HASH = "$.assaycontenthash"


def differing_paths(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the members in which an envelope differs from another one, sorted.

    The content hash is among them only if nothing else differs: it follows from what it covers.
    """

    def is_ours(parent: str, name: str) -> bool:
        names: dict[str, Mapping[str, Any]] = {"$": _ENVELOPE, "$.data": _DATA, "$.data.binding": _BINDING}
        return name in names[parent] or f"{parent}.{name}" in _SPLIT

    paths = differing(one, other, split=_SPLIT, is_ours=is_ours)
    if len(paths) > 1:
        paths.discard(_HASH)
    return tuple(sorted(paths))


def codes_of(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({_code_of(path) for path in paths}))


def rests_on_logs(paths: Iterable[str]) -> bool:
    """Tell whether all that differs follows from snapshots and control records, and nothing from the call."""
    return all(_code_of(path) in _FROM_LOGS for path in paths)


def differing(
    one: Mapping[str, Any],
    other: Mapping[str, Any],
    path: str = "$",
    *,
    split: Collection[str],
    is_ours: Callable[[str, str], bool],
) -> set[str]:
    """Return the members in which two objects differ, as JSON paths.

    Args:
        split: paths of objects that are compared member by member.
        is_ours: tells by its parent and name whether a member that ``other`` lacks may be named; any other is named by
            the object it stands in.
    """
    found: set[str] = set()
    for name in one.keys() | other.keys():
        member = f"{path}.{name}"
        mine, theirs = one.get(name), other.get(name)
        if name in one and name in other and _same(mine, theirs):
            continue
        if member in split and isinstance(mine, dict) and isinstance(theirs, dict):
            found |= differing(mine, theirs, member, split=split, is_ours=is_ours)
        else:
            found.add(member if name in other or is_ours(path, name) else path)
    return found


def _same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal; true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _code_of(path: str) -> str:
    steps = path.split(".")
    if steps[:3] == ["$", "data", "binding"]:
        return _BINDING.get(".".join(steps[3:]), "binding_differs")
    if steps[:2] == ["$", "data"]:
        return _DATA.get(".".join(steps[2:]), "call_differs")
    return _ENVELOPE.get(".".join(steps[1:]), "envelope_differs")
