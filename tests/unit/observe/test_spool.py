"""The spool: what is put in comes out in order, through crashes, within its bounds, and for one process alone."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.errors import ConfigurationError
from assay_stream.limits.files import SpoolLimits
from assay_stream.observe.observation import Observation
from assay_stream.observe.spool import Spool, spool_in
from tests.support.counting import counted_calls

SMALL = SpoolLimits(segment_bytes_max=300)
MIB = 1_024 * 1_024


def item(number: int) -> Observation:
    """A small observation."""
    headers = (("content-type", b"x"), ("h", bytes([number % 256])))
    return Observation(kind="call", key=b"k\xff", value=f"v\n{number}".encode(), headers=headers, timestamp_ms=number)


def a_spool(folder: Path, bytes_max: int = MIB) -> Spool:
    return Spool(folder, bytes_max=bytes_max, limits=SMALL)


def drained(spool: Spool) -> list[Observation]:
    """Everything that is in it, in order; afterwards it is empty."""
    found: list[Observation] = []
    while head := spool.head(3):
        found += head
        spool.drop(len(head))
    return found


def test_what_is_put_in_comes_out_byte_for_byte(tmp_path: Path) -> None:
    """Over several segments, and by another process, whose part was delivered already."""
    spool = a_spool(tmp_path / "s")
    items = [item(number) for number in range(40)]
    assert spool.append(items[:25]) == 25
    assert spool.append(items[25:]) == 15
    assert spool.head(7) == items[:7]
    spool.drop(7)
    assert (spool.records, spool.size_bytes > 0) == (33, True)
    spool.close()
    again = a_spool(tmp_path / "s")
    assert again.records == 33
    assert drained(again) == items[7:]
    assert (again.records, again.size_bytes) == (0, 0)
    again.close()


@given(st.data())
def test_order_holds_whatever_happens(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Appended, put back in front, read, dropped and opened again: as a list would have it."""
    folder = tmp_path_factory.mktemp("law")
    spool, model, number = a_spool(folder), list[Observation](), 0
    for act in data.draw(st.lists(st.sampled_from(["append", "take back", "drop", "open"]), max_size=20)):
        if act == "append":
            new = [item(number + n) for n in range(data.draw(st.integers(1, 8)))]
            number += len(new)
            assert spool.append(new) == len(new)
            model += new
        elif act == "drop":
            head = spool.head(data.draw(st.integers(1, 5)))
            assert head == model[: len(head)]
            count = data.draw(st.integers(0, len(head)))
            spool.drop(count)
            del model[:count]
        elif act == "take back" and spool.records == 0:
            new = [item(number), item(number + 1)]
            number += 2
            assert spool.prepend(new) == 2
            model = new
        elif act == "open":
            spool.close()
            spool = a_spool(folder)
        assert spool.records == len(model)
    assert drained(spool) == model
    spool.close()


def test_what_comes_back_stands_before_all_others(tmp_path: Path) -> None:
    """It is older than what went to the spool while it was in hand."""
    spool = a_spool(tmp_path)
    spool.append([item(3), item(4)])
    assert spool.prepend([item(1), item(2)]) == 2
    assert drained(spool) == [item(number) for number in (1, 2, 3, 4)]
    spool.close()


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_tail_is_cut(tmp_path: Path, cut: int) -> None:
    """What was whole stays, and what comes next stands behind it."""
    spool = a_spool(tmp_path)
    spool.append([item(1), item(2)])
    spool.close()
    [path] = tmp_path.glob("*.seg")
    path.write_bytes(
        path.read_bytes()[:-cut] if cut < 40 else path.read_bytes() + struct.pack(">II", 9, 0) + b"x" * cut
    )
    again = a_spool(tmp_path)
    again.append([item(3)])
    kept = drained(again)
    again.close()
    assert kept in ([item(1), item(3)], [item(1), item(2), item(3)])


def test_a_segment_that_is_damaged_while_it_is_used_is_left_out_and_counted(tmp_path: Path) -> None:
    """Otherwise the same place would be read for ever."""
    spool = Spool(tmp_path, bytes_max=MIB, limits=SpoolLimits(segment_bytes_max=1))
    spool.append([item(1), item(2)])
    spool.append([item(3)])
    path = min(tmp_path.glob("*.seg"))
    path.write_bytes(b"\0" * path.stat().st_size)
    assert spool.head(10) == [item(3)]
    assert (spool.lost, spool.records) == (2, 1)
    spool.close()


@pytest.mark.parametrize("while_used", [False, True], ids=["before the start", "while it is used"])
@pytest.mark.parametrize("number", [0, 4, 8])
def test_a_damaged_record_costs_itself_and_is_counted(tmp_path: Path, number: int, *, while_used: bool) -> None:
    """A bit that the disk turned must not take what was whole behind it along."""
    spool = a_spool(tmp_path)
    items = [item(each) for each in range(1, 10)]
    spool.append(items)
    [path] = tmp_path.glob("*.seg")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 9 * number + 12] ^= 1
    path.write_bytes(raw)
    if not while_used:
        spool.close()
        spool = a_spool(tmp_path)
    assert drained(spool) == [*items[:number], *items[number + 1 :]]
    assert (spool.lost, spool.records) == (1, 0)
    spool.close()


@pytest.mark.parametrize("while_used", [False, True], ids=["before the start", "while it is used"])
@pytest.mark.parametrize("garbled", [0, 1, 5, 60, 0x7F000000])
def test_a_garbled_length_costs_its_record_alone(tmp_path: Path, garbled: int, *, while_used: bool) -> None:
    """Shorter, longer, or beyond the end: reading goes on at the next sound record."""
    spool = a_spool(tmp_path)
    items = [item(each) for each in range(10, 16)]
    spool.append(items)
    [path] = tmp_path.glob("*.seg")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 6 * 2 : len(raw) // 6 * 2 + 4] = struct.pack(">I", garbled)
    path.write_bytes(raw)
    if not while_used:
        spool.close()
        spool = a_spool(tmp_path)
    assert drained(spool) == [*items[:2], *items[3:]]
    assert (spool.lost, spool.records) == (1, 0)
    spool.close()


def test_a_record_within_a_damaged_one_is_not_taken_for_ours(tmp_path: Path) -> None:
    """A server can put the bytes of a whole frame into a list, but not the salt of the checksum."""
    forged = b'["control",1,"k",[]]\nvalue'
    within = b"\0" * 3 + struct.pack(">II", len(forged), zlib.crc32(forged)) + forged
    spool = a_spool(tmp_path)
    spool.append([replace(item(1), value=within), item(2)])
    [path] = tmp_path.glob("*.seg")
    raw = bytearray(path.read_bytes())
    raw[0:4] = struct.pack(">I", 0x7F000000)
    path.write_bytes(raw)
    assert drained(spool) == [item(2)]
    spool.close()


def test_looking_for_the_next_record_is_bounded(tmp_path: Path) -> None:
    """A list of a server may look like nothing but beginnings of long records."""
    found: list[object] = []
    likely = (struct.pack(">II", 60_000, 0) + b'["') * 12_000
    spool = a_spool(tmp_path)
    spool.append([replace(item(1), value=likely)])
    [path] = tmp_path.glob("*.seg")
    raw = bytearray(path.read_bytes())
    raw[0:4] = struct.pack(">I", 0x7F000000)
    path.write_bytes(raw)
    # 320 or so, whatever the bytes look like; each of the likely beginnings would cost several.
    assert counted_calls(lambda: found.extend(spool.head(1))) < 1_500
    assert found == []
    spool.close()


def test_what_no_spool_wrote_stops_no_process(tmp_path: Path) -> None:
    """A frame of another program, a file of another name, and a segment that somebody removed."""
    (tmp_path / "notes.seg").write_text("mine")
    body = b"not JSON\nvalue"
    frame = struct.pack(">II", len(body), zlib.crc32(body)) + body
    spool = a_spool(tmp_path)
    spool.append([item(1)])
    spool.close()
    [path] = tmp_path.glob("0*.seg")
    path.write_bytes(frame + path.read_bytes())
    spool = a_spool(tmp_path)
    assert (spool.head(3), spool.lost) == ([item(1)], 1)
    path.unlink()
    assert (spool.head(3), spool.lost, spool.records) == ([], 2, 0)
    assert spool.append([item(2)]) == 1
    assert drained(spool) == [item(2)]
    spool.close()


@pytest.mark.parametrize("name", ["lock", "cursor", "salt"])
def test_a_link_in_the_folder_is_not_followed(tmp_path: Path, name: str) -> None:
    """It would have the spool write over a file of its user's."""
    (tmp_path / "theirs").write_text("precious")
    (tmp_path / "s").mkdir(mode=0o700)
    (tmp_path / "s" / name).symlink_to(tmp_path / "theirs")
    with pytest.raises(ConfigurationError) as caught:
        a_spool(tmp_path / "s")
    assert caught.value.code == "unwritable_file"
    assert (tmp_path / "theirs").read_text() == "precious"


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """What they leave there would be published in the name of this observer."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in ("open", "link"):
        with pytest.raises(ConfigurationError) as caught:
            a_spool(tmp_path / folder)
        assert caught.value.code == "unwritable_file"


@pytest.mark.parametrize("raw", [b"", b"x", b"\0" * 20, b"\xff" * 20])
def test_a_cursor_that_says_nothing_repeats_and_loses_nothing(tmp_path: Path, raw: bytes) -> None:
    """At least once, as without a spool."""
    spool = a_spool(tmp_path)
    spool.append([item(number) for number in range(4)])
    spool.head(2)
    spool.drop(2)
    spool.close()
    (tmp_path / "cursor").write_bytes(raw)
    again = a_spool(tmp_path)
    assert drained(again)[-4:] == [item(number) for number in range(4)]
    again.close()


def test_it_takes_no_more_than_its_bound(tmp_path: Path) -> None:
    """The first that fit; what comes back comes whole or not at all."""
    spool = a_spool(tmp_path, bytes_max=200)
    taken = spool.append([item(number) for number in range(10)])
    assert 0 < taken < 10
    assert spool.size_bytes <= 200
    assert spool.append([item(11)]) == 0
    assert spool.prepend([item(12)]) == 0
    assert len(drained(spool)) == taken
    assert spool.append([item(13)]) == 1
    spool.close()


def test_a_spool_is_of_one_process_and_its_owner(tmp_path: Path) -> None:
    """The next process gets one of its own, or goes on with one that was left."""
    first = spool_in(tmp_path / "all", mib_max=1)
    second = spool_in(tmp_path / "all", mib_max=1)
    assert first is not None
    assert second is not None
    with pytest.raises(ConfigurationError) as caught:
        a_spool(tmp_path / "all" / "0")
    assert caught.value.code == "spool_in_use"
    first.append([item(1)])
    first.close()
    third = spool_in(tmp_path / "all", mib_max=1)
    assert third is not None
    assert drained(third) == [item(1)]
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "all" / "0").iterdir()}
    assert modes == {0o600}
    assert (tmp_path / "all" / "0").stat().st_mode & 0o777 == 0o700
    second.close()
    third.close()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """At the start, and not when the brokers go away."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError) as caught:
        spool_in(tmp_path / "file", mib_max=1)
    assert caught.value.code == "unwritable_file"
