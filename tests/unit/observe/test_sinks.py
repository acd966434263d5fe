"""Where observations go."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from assay_stream.errors import ConfigurationError
from assay_stream.observe import FileSink, from_observations
from assay_stream.observe.observation import RawMessage
from assay_stream.observe.sinks import SinkStats
from tests.support.disk import files_of_at_most
from tests.unit.observe.test_events import a_call, a_snapshot


async def test_a_file_holds_one_event_a_line_as_replay_reads_them(tmp_path: Path) -> None:
    """Written through at once: a kill loses nothing."""
    path = tmp_path / "observations.ndjson"
    sink = FileSink(path)
    observations = [a_call(), a_snapshot([])]
    assert all(sink.publish(observation) for observation in observations)
    with path.open("rb") as lines:
        assert list(from_observations(lines)) == observations
    await sink.aclose()
    assert not sink.publish(a_call())
    assert sink.stats == SinkStats(accepted=2, delivered=2, dropped={"closed": 1})


def test_a_line_feed_in_an_unsound_message_breaks_no_line() -> None:
    file = io.BytesIO()
    FileSink(file).publish(a_snapshot(RawMessage(b'{"a":\n1,"a":\n2}')))
    assert file.getvalue().count(b"\n") == 1


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unwritable_file"):
        FileSink(tmp_path / "no" / "such" / "folder")


def test_a_full_disk_is_counted_and_never_raised(caplog: pytest.LogCaptureFixture) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        sink = FileSink(full)
        assert not sink.publish(a_call())
        assert not sink.publish(a_call())
    assert sink.stats.dropped == {"delivery_failed": 2}
    assert len(caplog.records) == 1


@pytest.mark.parametrize("opened", [lambda path: path, lambda path: path.open("ab"), lambda path: path.open("wb")])
async def test_a_line_that_does_not_fit_is_dropped_as_a_whole(
    tmp_path: Path, opened: Callable[[Path], Path | BinaryIO]
) -> None:
    """Nothing of it is in the file, and nothing is written later."""
    path, line = tmp_path / "observations.ndjson", a_call().value
    target = opened(path)
    sink = FileSink(target)
    assert sink.publish(a_call())
    with files_of_at_most(len(line) * 3 // 2):
        assert not sink.publish(a_snapshot([]))
        assert path.read_bytes().splitlines() == [line]
    assert sink.publish(a_call())
    await sink.aclose()
    if not isinstance(target, Path):
        target.close()
    assert path.read_bytes().splitlines() == [line, line]
    assert sink.stats == SinkStats(accepted=3, delivered=2, dropped={"delivery_failed": 1})


def test_a_line_cut_off_in_a_pipe_does_not_swallow_the_next() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with open(reader, "rb") as lines, open(writer, "wb") as target:
        os.write(writer, bytes(os.fpathconf(writer, "PC_PIPE_BUF")) * 15 + b"\n")
        sink = FileSink(target)
        assert not sink.publish(a_snapshot([{"name": "n" * 8_000}]))
        lines.readline()
        assert sink.publish(a_call())
        target.close()
        assert lines.read().splitlines()[-1] == a_call().value


async def test_what_a_file_holds_already_stays(tmp_path: Path) -> None:
    """A client that restarts its server restarts the tap; a line that a kill cut off does not swallow the next."""
    path = tmp_path / "observations.ndjson"
    path.write_bytes(b'{"whole":1}\n{"cut')
    for _ in range(2):
        sink = FileSink(path)
        sink.publish(a_call())
        await sink.aclose()
    line = a_call().value
    assert path.read_bytes().splitlines() == [b'{"whole":1}', b'{"cut', line, line]
