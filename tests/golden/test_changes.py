"""How deliberate changes are taken back, and made in what reports read."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import rfc8785

from tests.golden.changes import Change, _content_hash, changed
from tests.golden.difference import differences

OLD: dict[str, Any] = {"kind": "a", "list": [{"x": 1}, {"x": 2}], "said": "the old words", "z": {"name": 1, "other": 2}}


def a_change(**fields: Any) -> Change:
    """A change of every output."""
    return Change(outputs=("*",), reason="a test", **fields)


@pytest.mark.parametrize(
    ("change", "new"),
    [
        (a_change(path="z.title", old_name="name"), OLD | {"z": {"other": 2, "title": 1}}),
        (a_change(path="kind", new="b", old="a"), OLD | {"kind": "b"}),
        (a_change(path="said", new="new", old="old", within=True), OLD | {"said": "the new words"}),
        (a_change(path="list.*.y", old_name="x"), OLD | {"list": [{"y": 1}, {"y": 2}]}),
        (a_change(path="list.1.x", new=3, old=2), OLD | {"list": [{"x": 1}, {"x": 3}]}),
        (a_change(path="extra", new=7, added=True), OLD | {"extra": 7}),
        (a_change(path="kind", old="a"), {name: value for name, value in OLD.items() if name != "kind"}),
        (a_change(new="words", old="texts"), OLD | {"said": "the old words"}),
    ],
)
def test_a_change_is_taken_back_and_made(change: Change, new: dict[str, Any]) -> None:
    """Every sort of change gives the bytes of before, and the other way round those of today."""
    old = OLD | {"said": "the old texts"} if not change.path else OLD
    before, today = (rfc8785.dumps(record) + b"\n" for record in (old, new))
    forward = change.forward()
    assert forward is not None
    assert changed(today, [change]) == before
    assert changed(before, [forward]) == today
    line = orjson.dumps({"origin": {}, "value": before.decode()}) + b"\n"
    assert orjson.loads(changed(line, [forward]))["value"] == today.decode()


def test_a_content_hash_that_was_right_is_right_again() -> None:
    """What evidence covers changed with it; a hash that was wrong stays wrong."""
    base = {"specversion": "1.0", "type": "t", "datacontenttype": "application/json"}
    old, new = (base | {"data": {name: 1}} for name in ("old", "new"))
    change = a_change(path="data.new", old_name="old")
    sound, broken = (
        [rfc8785.dumps(event | {"assaycontenthash": made(event)}) for event in (old, new)]
        for made in (_content_hash, lambda _: "sha256:00")
    )
    assert changed(sound[1], [change]) == sound[0]
    assert changed(broken[1], [change]) == broken[0]


def test_what_is_not_listed_is_a_difference_with_its_place() -> None:
    """The field is named with both values, and so is a record that is there no more."""
    before, today = (b'{"a":{"b":%d}}\n{"c":1}\n' % number for number in (1, 2))
    told = "\n".join(differences({"out": before, "gone": b""}, {"out": today[:-8]}))
    assert "out:1: $.a.b: 1 -> 2" in told
    assert "out:2: $: {'c': 1} -> nothing" in told
    assert "gone: is not written any more" in told
