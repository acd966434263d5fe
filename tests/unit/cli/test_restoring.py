"""What ``topics restore`` refuses before it contacts a broker, and what it says cannot be restored."""

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from assay_stream.cli.archiving import Restoring, archived_roles, file_of
from assay_stream.config import load_settings
from assay_stream.errors import AssayStreamError
from assay_stream.files.archive import ARCHIVE_MANIFEST, GroupOffset, files_in, manifest_bytes
from assay_stream.files.lines import record_line
from assay_stream.files.spool import LogSpool
from assay_stream.kafka.ranges import READ
from assay_stream.model.record import TOPIC_NAMES, Origin, Record, Role
from tests.support.errors import raises_code


def a_record(role: Role, offset: int, *, topic: str | None = None) -> Record:
    return Record(role, Origin(topic or TOPIC_NAMES[role], 0, offset), b"key", b"value", timestamp_ms=7)


def an_archive(folder: Path, roles: Collection[Role], *, selected: bool = False, prefix: str = "") -> Path:
    """One record at offset 3 of each topic, which ends at 5."""
    for role in roles:
        line = record_line(a_record(role, 3, topic=prefix + TOPIC_NAMES[role]))
        (folder / file_of(role)).write_bytes(line + b"\n")
    places = [(prefix + TOPIC_NAMES[role], 0) for role in roles]
    manifest = manifest_bytes(dict.fromkeys(places, 5), {}, dict.fromkeys(places, 3), selected=selected)
    (folder / ARCHIVE_MANIFEST).write_bytes(manifest)
    return folder


def read(folder: Path) -> Restoring:
    with LogSpool() as spool:
        return Restoring(load_settings(), folder, spool)


def without_manifest(folder: Path) -> None:
    (an_archive(folder, READ) / ARCHIVE_MANIFEST).unlink()


def without_a_file(folder: Path) -> None:
    (an_archive(folder, READ) / file_of(Role.CALLS)).unlink()


def cut_short(folder: Path) -> None:
    (an_archive(folder, READ) / file_of(Role.CALLS)).write_bytes(b"")


def with_another_topic(folder: Path) -> None:
    line = record_line(a_record(Role.CALLS, 4, topic="elsewhere"))
    with (an_archive(folder, READ) / file_of(Role.CALLS)).open("ab") as file:
        file.write(line)


def with_an_event(folder: Path) -> None:
    with (an_archive(folder, READ) / file_of(Role.CALLS)).open("ab") as file:
        file.write(b'{"specversion":"1.0","type":"assay.tool.call"}\n')


def with_positions_elsewhere(folder: Path) -> None:
    """Of a group that has nothing to do with this deployment."""
    places = [(TOPIC_NAMES[role], 0) for role in READ]
    groups = [GroupOffset("payments", "payments.orders", 0, 0, "")]
    manifest = manifest_bytes(dict.fromkeys(places, 5), {}, dict.fromkeys(places, 3), groups=groups)
    (an_archive(folder, READ) / ARCHIVE_MANIFEST).write_bytes(manifest)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (without_manifest, "not_restorable"),
        (without_a_file, "not_restorable"),
        (with_positions_elsewhere, "not_restorable"),
        (lambda folder: an_archive(folder, READ, selected=True), "not_restorable"),
        (lambda folder: an_archive(folder, [Role.CALLS]), "not_restorable"),
        (with_another_topic, "not_restorable"),
        (with_an_event, "not_restorable"),
        (cut_short, "archive_truncated"),
        (lambda folder: an_archive(folder, READ, prefix="other."), "other_topics"),
    ],
    ids=["manifest", "file", "positions", "selection", "topics", "foreign record", "event", "cut", "prefix"],
)
def test_what_is_no_whole_archive_is_refused(tmp_path: Path, make: Callable[[Path], object], code: str) -> None:
    make(tmp_path)
    with raises_code(code, kind=AssayStreamError):
        read(tmp_path)


def test_what_cannot_be_restored_is_named(tmp_path: Path) -> None:
    """Of the inputs alone: what follows from them, seals and positions; of all topics: what brokers set."""
    inputs = read(an_archive(tmp_path, READ)).not_restored()
    assert any(text.startswith("seals") for text in inputs)
    everything = read(an_archive(tmp_path, archived_roles())).not_restored()
    assert not any(text.startswith("seals") for text in everything)
    assert f"{TOPIC_NAMES[Role.REROUTED]}: records get the time of writing" in everything


def test_a_release_that_knew_fewer_topics_is_restored(tmp_path: Path) -> None:
    """An archive has all topics of its release, or the inputs."""
    known = [role for role in archived_roles() if role is not Role.JOIN_PROGRESS]
    assert read(an_archive(tmp_path, known)).counts == {TOPIC_NAMES[role]: 1 for role in known}


def test_an_archive_of_all_topics_replays_as_one_of_the_inputs(tmp_path: Path) -> None:
    """The files of other topics count as no observations."""
    found = {path.name for path in files_in(an_archive(tmp_path, archived_roles()))}
    assert found == {*map(file_of, READ), ARCHIVE_MANIFEST}
