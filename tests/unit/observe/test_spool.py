"""The spool: what is put in comes out in order, through crashes, within its bounds, and for one process alone."""

import gc
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from assay_stream.errors import ConfigurationError
from assay_stream.limits import SpoolLimits
from assay_stream.observe import spool as module
from assay_stream.observe.observation import Observation
from assay_stream.observe.spool import Spool, spool_in
from tests.support.disk import files_of_at_most
from tests.support.errors import raises_code

SMALL = SpoolLimits(head_bytes_max=2_000)
MIB = 1_024 * 1_024


def item(number: int) -> Observation:
    headers = (("content-type", b"x"), ("h", bytes([number % 256])))
    return Observation(kind="call", key=b"k\xff", value=f"v\n{number}".encode(), headers=headers, timestamp_ms=number)


def a_spool(folder: Path, bytes_max: int = MIB) -> Spool:
    return Spool(folder, bytes_max=bytes_max, limits=SMALL)


def drained(spool: Spool) -> list[Observation]:
    found: list[Observation] = []
    while head := spool.head(3):
        found += head
        spool.drop(len(head))
    return found


def test_what_is_put_in_comes_out_byte_for_byte(tmp_path: Path) -> None:
    """In several parts, and by another process, whose part was delivered already."""
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
    """Appended, read, dropped and opened again: as a list would have it."""
    folder = tmp_path_factory.mktemp("law")
    spool, model, number = a_spool(folder), list[Observation](), 0
    for act in data.draw(st.lists(st.sampled_from(["append", "under way", "drop", "open"]), max_size=20)):
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
        elif act == "under way" and spool.records == 0:
            # What is put in while it is delivered is dropped without having been read.
            assert spool.append([item(number), item(number + 1)]) == 2
            spool.drop(1)
            model = [item(number + 1)]
            number += 2
        elif act == "open":
            spool.close()
            spool = a_spool(folder)
        assert spool.records == len(model)
    assert drained(spool) == model
    spool.close()


@pytest.mark.parametrize("how", ["rebooted", "killed"])
def test_what_was_put_in_is_on_disk_at_once(tmp_path: Path, how: str) -> None:
    """Without being closed: a kill leaves the log of SQLite, a power failure perhaps a torn piece of what came next."""
    spool = a_spool(tmp_path / "s")
    spool.append([item(1), item(2)])
    spool.append([item(3)])
    shutil.copytree(tmp_path / "s", tmp_path / "left")
    if how == "rebooted":
        with (tmp_path / "left" / "queue.db-wal").open("ab") as log:
            log.write(b"\xff" * 5_000)
    again = a_spool(tmp_path / "left")
    assert (drained(again), again.lost) == ([item(1), item(2), item(3)], 0)
    spool.close()
    again.close()


@pytest.mark.parametrize("while_used", [False, True], ids=["before the start", "while it is used"])
@pytest.mark.parametrize("number", [0, 4, 8])
def test_a_damaged_record_costs_itself_and_is_counted(tmp_path: Path, number: int, *, while_used: bool) -> None:
    """A bit that the disk turned must not take what was whole behind it along."""
    spool = a_spool(tmp_path)
    items = [item(each) for each in range(10, 19)]
    spool.append(items)
    if while_used:
        with spool._db:
            spool._db.execute("UPDATE waiting SET body = body || 'x' WHERE place = ?", (number + 1,))
    else:
        spool.close()
        path = tmp_path / "queue.db"
        raw = path.read_bytes()
        path.write_bytes(raw.replace(b"v\n%d" % (10 + number), b"v\n%d" % (60 + number)))
        spool = a_spool(tmp_path)
    assert drained(spool) == [*items[:number], *items[number + 1 :]]
    assert (spool.lost, spool.records) == (1, 0)
    assert spool.append([item(1)]) == 1
    assert drained(spool) == [item(1)]
    spool.close()


def test_a_damaged_page_costs_the_records_on_it(tmp_path: Path) -> None:
    """What stands before and behind it goes to a new file."""
    spool = a_spool(tmp_path)
    items = [replace(item(number), value=b"x" * 2_000) for number in range(80)]
    spool.append(items)
    spool.close()
    path = tmp_path / "queue.db"
    raw = bytearray(path.read_bytes())
    page = 16_384
    found = next(start for start in range(3 * page, len(raw), page) if raw[start] == 13)
    raw[found : found + 200] = b"\xff" * 200
    path.write_bytes(raw)
    spool = a_spool(tmp_path)
    kept = drained(spool)
    assert 60 < len(kept) < 80
    assert kept == [each for each in items if each in kept]
    assert spool.lost >= 1
    spool.close()
    again = a_spool(tmp_path)
    assert (again.records, again.lost) == (0, 0)
    again.close()


def test_what_no_spool_wrote_stops_no_process(tmp_path: Path) -> None:
    """It is set aside and counted as one."""
    (tmp_path / "queue.db").write_bytes(b"no database " * 1_000)
    spool = a_spool(tmp_path)
    assert (spool.head(3), spool.lost, spool.records) == ([], 1, 0)
    assert (tmp_path / "damaged.db").read_bytes().startswith(b"no database")
    assert spool.append([item(2)]) == 1
    assert drained(spool) == [item(2)]
    spool.close()


def test_a_damaged_file_is_tried_again_where_the_disk_does_not_take_what_is_left_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is forgotten meanwhile."""
    spool = a_spool(tmp_path)
    items = [replace(item(number), value=b"x" * 2_000) for number in range(80)]
    spool.append(items)
    spool.close()
    raw = bytearray((tmp_path / "queue.db").read_bytes())
    found = next(start for start in range(3 * 16_384, len(raw), 16_384) if raw[start] == 13)
    raw[found : found + 200] = b"\xff" * 200
    (tmp_path / "queue.db").write_bytes(raw)
    with monkeypatch.context() as patched:
        patched.setattr(module, "_SETTINGS", module._SETTINGS + "PRAGMA max_page_count = 4;")
        with raises_code("unwritable_file", kind=ConfigurationError):
            a_spool(tmp_path)
    spool = a_spool(tmp_path)
    assert 60 < len(drained(spool)) < 80
    spool.close()


def test_a_disk_that_is_full_for_a_while_neither_loses_nor_repeats_anything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was delivered meanwhile is skipped, and removed once there is room."""
    spool = a_spool(tmp_path)
    items = [item(number) for number in range(12)]
    spool.append(items[:10])
    with files_of_at_most(1):
        spool.drop(2)
        spool.drop(2)
        assert (spool.records, spool.head(2)) == (6, items[4:6])
        with pytest.raises(OSError, match="disk"):
            spool.append(items[10:])
    assert len(caplog.records) == 1
    assert spool.append(items[10:]) == 2
    assert drained(spool) == items[4:]
    assert spool.append(items[:1]) == 1
    assert drained(spool) == items[:1]
    spool.append(items[:3])
    with files_of_at_most(1):
        spool.drop(2)
    spool.close()
    again = a_spool(tmp_path)
    assert drained(again) == items[2:3]
    again.close()


def test_what_is_read_at_once_is_bounded(tmp_path: Path) -> None:
    spool = a_spool(tmp_path)
    spool.append([replace(item(number), value=b"x" * 1_500) for number in range(9)])
    assert len(spool.head(9)) == 2
    spool.close()


def test_a_forked_child_leaves_it_to_its_parent(tmp_path: Path) -> None:
    """Closing the file there would move what the parent wrote, and remove its log."""
    spool = a_spool(tmp_path)
    spool.append([item(1)])
    child = os.fork()
    if child == 0:
        spool.abandon()
        del spool
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "queue.db-wal").exists()
    spool.append([item(2)])
    assert drained(spool) == [item(1), item(2)]
    spool.close()


@pytest.mark.parametrize("name", ["queue.db", "queue.db-wal"])
def test_a_link_in_the_folder_is_not_followed(tmp_path: Path, name: str) -> None:
    """It would have the spool write over a file of its user's."""
    (tmp_path / "theirs").write_text("precious")
    (tmp_path / "s").mkdir(mode=0o700)
    (tmp_path / "s" / name).symlink_to(tmp_path / "theirs")
    with raises_code("unwritable_file", kind=ConfigurationError):
        a_spool(tmp_path / "s")
    assert (tmp_path / "theirs").read_text() == "precious"


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """What they leave there would be published in the name of this observer."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in ("open", "link"):
        with raises_code("unwritable_file", kind=ConfigurationError):
            a_spool(tmp_path / folder)


def test_it_takes_no_more_than_its_bound(tmp_path: Path) -> None:
    """The first that fit. The room is given back once all are delivered."""
    spool = a_spool(tmp_path, bytes_max=200_000)
    items = [replace(item(number), value=b"x" * 5_000) for number in range(60)]
    taken = spool.append(items)
    assert 20 < taken < 40
    assert 150_000 < spool.size_bytes <= 200_000
    assert spool.append(items) == 0
    assert drained(spool) == items[:taken]
    assert spool.append([item(13)]) == 1
    spool.close()
    assert (tmp_path / "queue.db").stat().st_size < 100_000


def test_a_spool_is_of_one_process_and_its_owner(tmp_path: Path) -> None:
    """The next process gets one of its own, or goes on with one that was left."""
    first = spool_in(tmp_path / "all", mib_max=1)
    second = spool_in(tmp_path / "all", mib_max=1)
    assert first is not None
    assert second is not None
    with raises_code("spool_in_use", kind=ConfigurationError):
        a_spool(tmp_path / "all" / "0")
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
    with raises_code("unwritable_file", kind=ConfigurationError):
        spool_in(tmp_path / "file", mib_max=1)
