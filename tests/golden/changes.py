"""Deliberate changes of records since the golden files were written: today's records under yesterday's names.

``tests/data/golden/changes.toml`` lists them. A comparison takes them back in what today's code wrote, and the
result must equal what the old code wrote, byte by byte.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import rfc8785

CHANGES = Path(__file__).parents[1] / "data" / "golden" / "changes.toml"
_COVERED = ("specversion", "type", "datacontenttype", "data", "subject")
_MISSING = object()
_TIMELINE_ORDER = ("decision", "snapshot", "announcement", "rejection", "finding", "alert")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One deliberate change.

    Args:
        outputs: names of outputs as in ``outputs.py``, with ``*``.
        reason: why, as in CHANGELOG.md.
        path: where the field stands in today's record: names and list indexes joined by ``.``, ``*`` for any.
            Empty to replace ``new`` by ``old`` wherever it stands in the output's text.
        old_name: what the field was called before; empty where the name is the same.
        new: value of today, ``None`` for any.
        old: value of before; without ``new`` a field that is no longer written.
        within: whether ``new`` is a part of a text, to be replaced by ``old``.
        added: whether the field was not written before.
        timeline_order: whether lines are put back in the order of time, kind and content, which timelines had.
        read_translated: whether reports read the golden results with this change made in them, because ``compare``
            holds this very text against today's. Without it they read what the old code wrote.
    """

    outputs: tuple[str, ...]
    reason: str
    path: str = ""
    old_name: str = ""
    new: Any = None
    old: Any = None
    within: bool = False
    added: bool = False
    timeline_order: bool = False
    read_translated: bool = False

    def applies(self, output: str) -> bool:
        """Tell whether it is about this output."""
        return any(fnmatch.fnmatchcase(output, pattern) for pattern in self.outputs)

    def forward(self) -> Change | None:
        """The opposite change; ``None`` where it cannot be told what the new field holds."""
        if self.added:
            return None if self.new is None else replace(self, added=False, new=None, old=self.new)
        if self.old is not None and self.new is None:
            return replace(self, added=True, new=self.old, old=None)
        *parents, name = self.path.split(".")
        path = ".".join([*parents, self.old_name or name])
        return replace(self, path=path, old_name=self.old_name and name, new=self.old, old=self.new)

    def take_back(self, record: Any) -> None:
        """Give a record the field that it had before, in place."""
        *parents, name = self.path.split(".")
        for parent in _reached(record, parents):
            if isinstance(parent, dict):
                for each in list(parent) if name == "*" else [name]:
                    self._in_object(parent, each)
            elif isinstance(parent, list) and name == "*":
                parent[:] = [self._value(item) for item in parent]

    def _in_object(self, parent: dict[str, Any], name: str) -> None:
        value = parent.get(name, _MISSING)
        if value is _MISSING:
            if self.old is not None and self.new is None:
                parent[name] = self.old
        elif self.added:
            if self.new is None or self.new == value:
                del parent[name]
        elif self.old_name:
            first, end = _sorted_around(list(parent), name)
            items = [(self.old_name if key == name else key, item) for key, item in parent.items()]
            parent.clear()
            parent.update([*items[:first], *sorted(items[first:end], key=lambda item: item[0]), *items[end:]])
            parent[self.old_name] = self._value(value)
        else:
            parent[name] = self._value(value)

    def _value(self, value: Any) -> Any:
        if self.within:
            return value.replace(self.new, self.old) if isinstance(value, str) else value
        return self.old if self.new is not None and value == self.new else value


def _sorted_around(names: list[str], name: str) -> tuple[int, int]:
    """The first and the end of the names around one that stand in order: there a new name has another place."""
    first = names.index(name)
    end = first + 1
    while first and names[first - 1] < names[first]:
        first -= 1
    while end < len(names) and names[end - 1] < names[end]:
        end += 1
    return first, end


def _reached(value: Any, path: list[str]) -> Iterator[Any]:
    if not path:
        yield value
        return
    name, *rest = path
    if isinstance(value, dict):
        for each in list(value) if name == "*" else [name]:
            if each in value:
                yield from _reached(value[each], rest)
    elif isinstance(value, list):
        for item in value if name == "*" else value[int(name) : int(name) + 1]:
            yield from _reached(item, rest)


@cache
def changes() -> tuple[Change, ...]:
    """Every deliberate change, in the order in which they are taken back."""
    listed = tomllib.loads(CHANGES.read_text(encoding="utf-8")).get("change", [])
    return tuple(Change(**fields | {"outputs": tuple(fields["outputs"])}) for fields in listed)


def as_before(output: str, content: bytes) -> bytes:
    """What an output would be without the deliberate changes.

    Args:
        output: its name.
        content: lines of JSON, or plain text.
    """
    return changed(content, [change for change in changes() if change.applies(output)])


def as_today(output: str, content: bytes) -> bytes:
    """A golden result for today's reports to read: as the old code wrote it, but for ``read_translated`` changes.

    Args:
        output: its name.
        content: lines of JSON or record lines.
    """
    listed = [change.forward() for change in reversed(changes()) if change.read_translated and change.applies(output)]
    return changed(content, [change for change in listed if change is not None])


def changed(content: bytes, listed: Sequence[Change]) -> bytes:
    """Some content with changes taken back, in their order.

    Args:
        content: lines of JSON, record lines, or plain text.
        listed: what to take back.
    """
    for change in listed:
        if change.timeline_order:
            rows = sorted(content.splitlines(keepends=True), key=_timeline_place)
            content = b"".join(rows)
        elif not change.path:
            content = content.replace(change.new.encode(), change.old.encode())
    in_records = [change for change in listed if change.path]
    if not in_records:
        return content
    return b"".join(_line_changed(line, in_records) for line in content.splitlines(keepends=True))


def _timeline_place(line: bytes) -> tuple[str, int, bytes]:
    row = orjson.loads(line)
    time, _ = row.pop("time"), row.pop("server_id")
    return time, _TIMELINE_ORDER.index(row["what"]), orjson.dumps(row, option=orjson.OPT_SORT_KEYS)


def _line_changed(line: bytes, listed: Sequence[Change]) -> bytes:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return line
    if isinstance(record, dict) and record.get("value") and isinstance(record.get("origin"), dict):
        record["value"] = _line_changed(record["value"].encode(), listed).decode()
        return orjson.dumps(record) + b"\n"
    was = orjson.dumps(record)
    is_canonical = rfc8785.dumps(record) == line.rstrip(b"\n")
    had_hash = isinstance(record, dict) and record.get("assaycontenthash") == _content_hash(record)
    for change in listed:
        change.take_back(record)
    if orjson.dumps(record) == was:
        return line
    if had_hash:
        record["assaycontenthash"] = _content_hash(record)
    told = rfc8785.dumps(record) if is_canonical else orjson.dumps(record)
    return told + line[len(line.rstrip(b"\n")) :]


def _content_hash(event: dict[str, Any]) -> str:
    covered = {name: event[name] for name in _COVERED if name in event}
    return f"sha256:{sha256(rfc8785.dumps(covered)).hexdigest()}"
