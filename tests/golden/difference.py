"""Two sets of outputs held against each other, and what differs said record by record."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import orjson

from tests.golden.changes import as_before, changes
from tests.golden.outputs import Outputs

_SHOWN_MAX = 5
_TEXT_CHARS_MAX = 160
_NOTHING = object()


def differences(golden: Outputs, today: Outputs) -> list[str]:
    """What differs once the deliberate changes are taken back, one line of text for each field.

    Args:
        golden: outputs of the golden commit.
        today: outputs of the code at hand.
    """
    found = []
    for name in sorted(golden.keys() | today.keys()):
        if name not in today:
            found.append(f"{name}: is not written any more")
        elif name not in golden:
            found.append(f"{name}: was not written before")
        elif golden[name] != today[name]:
            found.extend(_in_output(name, golden[name], today[name]))
    return found


def _in_output(name: str, before: bytes, after: bytes) -> Iterator[str]:
    if name.endswith(".tar.gz"):
        members = _members(before), _members(after)
        changed = [f"{name}: the archive's own bytes differ"] if not _follows(members[0]) else []
        nested = [line for member in sorted(members[0]) for line in _in_member(name, member, members)]
        yield from nested or changed
        return
    after = as_before(name, after)
    if before == after:
        return
    olds, news = before.splitlines(), after.splitlines()
    pairs = [(number, *pair) for number, pair in enumerate(zip_longest(olds, news), 1) if pair[0] != pair[1]]
    yield f"{name}: {len(pairs)} of {len(olds)} lines differ; there are {len(news)} now"
    for number, old, new in pairs[:_SHOWN_MAX]:
        for line in _in_line(old, new):
            yield f"{name}:{number}: {line}"


def _follows(members: Outputs) -> bool:
    """Tell whether a deliberate change of the members makes other bytes of the whole."""
    return any(change.applies(member) for change in changes() for member in members)


def _in_member(name: str, member: str, members: tuple[Outputs, Outputs]) -> Iterator[str]:
    before, after = (content.get(member, b"") for content in members)
    if before != after:
        yield from _in_output(f"{name}/{member}", before, after)


def _members(content: bytes) -> Outputs:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as tar:
        return {member.name: (tar.extractfile(member) or io.BytesIO()).read() for member in tar}


def _in_line(old: bytes | None, new: bytes | None) -> Iterator[str]:
    try:
        before, after = (_NOTHING if line is None else orjson.loads(line) for line in (old, new))
    except orjson.JSONDecodeError:
        yield f"{_short(old)} -> {_short(new)}"
        return
    told = list(_in_value("$", before, after))
    yield from told[:_SHOWN_MAX]
    if not told:
        yield f"the same values in other bytes: {_short(old)} -> {_short(new)}"


def _in_value(path: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from _in_value(f"{path}.{name}", before.get(name, _NOTHING), after.get(name, _NOTHING))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, pair in enumerate(zip(before, after, strict=True)):
            yield from _in_value(f"{path}[{place}]", *pair)
    elif type(before) is not type(after) or before != after:
        yield f"{path}: {_short(before)} -> {_short(after)}"


def _short(value: Any) -> str:
    text = "nothing" if value is _NOTHING or value is None else repr(value)
    return text if len(text) <= _TEXT_CHARS_MAX else f"{text[:_TEXT_CHARS_MAX]}..."
