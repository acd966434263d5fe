"""The results of a replay in a folder, and the point from which an interrupted one resumes.

At a *resume point* everything written so far is on the disk, and a small file says how much that is and where the
replay stands. Resuming cuts the results to that length, so that they are the bytes of an undisturbed run.

Until a replay is done its files end in ``.part``: a file under its own name is whole, and earlier results stay until
new ones take their place.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.record_line import rejected_line
from assay_stream.limits.storage import PROGRESS_FILE_BYTES_MAX, REFUSED_BYTES_MAX, REFUSED_RECORDS_MAX
from assay_stream.model.record import LEFT_OUT_HEADER, Origin, Output, Record, Role, rejected, size_bytes
from assay_stream.replay.run import ResumePoint

FILES = {
    Role.EVIDENCE: "evidence.ndjson",
    Role.ALERTS: "alerts.ndjson",
    Role.DEFINITIONS: "definitions.ndjson",
    Role.CHANGES: "changes.ndjson",
    Role.REJECTED: "rejected.ndjson",
}
# Evidence is the bulk, and reading a member of an enum, or hashing it, takes a call of its own.
_EVIDENCE, _DEFINITIONS = Role.EVIDENCE, Role.DEFINITIONS
PROGRESS_FILE = "replay.progress.json"
_PART = ".part"
LEFTOVERS = frozenset({f"{name}{_PART}" for name in FILES.values()} | {"replay.progress.new"})
"""What a replay killed before its first resume point may leave: nobody's results."""
_VERSION = 3
_DIGITS_MAX = 18

Ends = dict[Role, dict[int, int]]


class _Progress(Struct, kw_only=True, forbid_unknown_fields=True):
    """State file of an interrupted replay."""

    version: int = _VERSION
    what: dict[str, Any]
    ends: Ends | None
    resume_point: ResumePoint
    sizes_bytes: dict[Role, int]
    written: dict[str, int]
    labels: dict[str, int]
    refused: dict[str, Annotated[list[int], Meta(min_length=4, max_length=4)]]


class Tally:
    """What was written: counted, each definition once, as the compacted definition topic has it, and of each log no
    more refused records than a replay may write.

    Attributes:
        refused: by partition and topic of a log: how many of its refused records were written, their bytes, how many
            were left out, and the offset of the first of these.
    """

    def __init__(self) -> None:
        self.refused: dict[str, list[int]] = {}
        self.written: Counter[str] = Counter({role.value: 0 for role in FILES})
        self.what: Counter[str] = Counter()
        self._definitions: set[bytes | None] = set()

    def takes(self, output: Output) -> bool:
        """Count an output; return True if it is to be written."""
        role = output.role
        if role is _DEFINITIONS and not self.is_new(output):
            return False
        self.what[output.label] += 1
        if role is not _EVIDENCE and (role not in FILES or (role is Role.REJECTED and self._leaves_out(output))):
            return False
        self.written[role._value_] += 1
        return True

    def _leaves_out(self, output: Output) -> bool:
        (name, many), *_, (_, topic), (_, partition), (_, offset) = output.headers
        found = self.refused.setdefault(f"{partition.decode()}/{topic.decode()}", [0, 0, 0, 0])
        size = size_bytes(output.key, output.value, output.headers)
        if not found[2]:
            found[3] = int(offset)
            if name != LEFT_OUT_HEADER and found[0] < REFUSED_RECORDS_MAX and found[1] + size <= REFUSED_BYTES_MAX:
                found[:2] = [found[0] + 1, found[1] + size]
                return False
        # Anybody can write such a header.
        is_count = name == LEFT_OUT_HEADER and (many or b"").isdigit() and len(many) <= _DIGITS_MAX
        found[2] += int(many) if is_count else 1
        return True

    def taken(self, steps: Iterable[list[Output]]) -> Iterator[Output]:
        for outputs in steps:
            yield from filter(self.takes, outputs)
        yield from self.left_out()

    def left_out(self) -> Iterator[Output]:
        """Yield a rejected record for each log of which some were left out."""
        for log, (_, _, count, first) in sorted(self.refused.items()):
            if count:
                self.written[Role.REJECTED.value] += 1
                partition, _, topic = log.partition("/")
                headers = ((LEFT_OUT_HEADER, b"%d" % count),)
                record = Record(Role.CALLS, Origin(topic, int(partition), first), None, None, headers)
                message = f"from here on {count} refused records of this log are left out: the input has them"
                yield rejected(record, InputError("refused_too_often", message))

    def is_new(self, definition: Output) -> bool:
        """Record a definition; return True if it is new."""
        if definition.key in self._definitions:
            return False
        self._definitions.add(definition.key)
        return True


class Results:
    """Files of results in a folder.

    Args:
        ends: end offsets of the replayed topics, ``None`` for files.

    Raises:
        OSError: if the folder cannot be written.
    """

    def __init__(self, folder: Path, what: dict[str, Any], *, ends: Ends | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._what: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(what))
        self._ends = ends
        self._files: dict[Role, IO[bytes]] = {}
        self._evidence: IO[bytes] | None = None
        self.tally = Tally()

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def start(self) -> None:
        """Start with empty files; an interrupted replay in this folder can no longer be resumed."""
        (self._folder / PROGRESS_FILE).unlink(missing_ok=True)
        self._files = {role: self._part(role).open("wb", 1_024 * 1_024) for role in FILES}
        self._evidence = self._files[_EVIDENCE]

    def resume(self) -> ResumePoint | None:
        """Truncate the files to the last resume point and return it, if there is one.

        Raises:
            ConfigurationError: ``resume_differs``, ``bad_progress_file``.
        """
        progress = _progress_in(self._folder)
        if progress is None:
            return None
        before = progress.what
        differing = sorted(
            name for name in self._what.keys() | before.keys() if self._what.get(name) != before.get(name)
        )
        if differing:
            raise ConfigurationError(
                "resume_differs",
                f"the interrupted replay differed in: {', '.join(differing)}. Give the same options and inputs, "
                "or replay with --force instead of --resume",
            )
        for role in FILES:
            part = self._part(role)
            if not part.exists() or part.stat().st_size < progress.sizes_bytes[role]:
                raise ConfigurationError(
                    "bad_progress_file", f"{part} is shorter than it was: replay with --force instead of --resume"
                )
            file = part.open("r+b", 1_024 * 1_024)
            self._files[role] = file
            file.truncate(progress.sizes_bytes[role])
            file.seek(0, os.SEEK_END)
        self._evidence = self._files[_EVIDENCE]
        tally = self.tally
        tally.written, tally.what, tally.refused = Counter(progress.written), Counter(progress.labels), progress.refused
        return progress.resume_point

    def write(self, output: Output) -> None:
        if self.tally.takes(output):
            if output.role is _EVIDENCE and self._evidence is not None:
                self._evidence.write((output.value or b"") + b"\n")
                return
            line = rejected_line(output) if output.role is Role.REJECTED else output.value or b""
            self._files[output.role].write(line + b"\n")

    def resume_point(self, point: ResumePoint) -> None:
        """Make sure that a replay can resume from here."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        progress = _Progress(
            what=self._what,
            ends=self._ends,
            resume_point=point,
            sizes_bytes={role: file.tell() for role, file in self._files.items()},
            written=self.tally.written,
            labels=self.tally.what,
            refused=self.tally.refused,
        )
        path = self._folder / PROGRESS_FILE
        beside = path.with_suffix(".new")
        with beside.open("wb") as file:
            file.write(msgspec.json.encode(progress))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    @property
    def replaces(self) -> bool:
        return any((self._folder / name).exists() for name in FILES.values())

    def end(self) -> None:
        """Rename the complete files into place; there is nothing left to resume."""
        self._files[Role.REJECTED].writelines(rejected_line(output) + b"\n" for output in self.tally.left_out())
        for file in self._files.values():
            file.close()
        for role, name in FILES.items():
            self._part(role).replace(self._folder / name)
        (self._folder / PROGRESS_FILE).unlink(missing_ok=True)

    def discard(self) -> None:
        """Drop what was written; what the folder held before stays."""
        for role, file in self._files.items():
            file.close()
            self._part(role).unlink(missing_ok=True)
        (self._folder / PROGRESS_FILE).unlink(missing_ok=True)

    def _part(self, role: Role) -> Path:
        return self._folder / f"{FILES[role]}{_PART}"


def noted_ends(folder: Path) -> Ends | None:
    """Return the end offsets noted when the interrupted replay in a folder started, if any.

    Raises:
        ConfigurationError: ``bad_progress_file``.
    """
    progress = _progress_in(folder)
    return None if progress is None else progress.ends


def _progress_in(folder: Path) -> _Progress | None:
    path = folder / PROGRESS_FILE
    try:
        with path.open("rb") as file:
            raw = file.read(PROGRESS_FILE_BYTES_MAX + 1)
        progress = msgspec.json.decode(raw[:PROGRESS_FILE_BYTES_MAX], type=_Progress)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        progress = None
    if progress is None or progress.version != _VERSION or progress.sizes_bytes.keys() != FILES.keys():
        raise ConfigurationError(
            "bad_progress_file",
            f"{path} is not a progress file of this version: replay with --force instead of --resume",
        )
    return progress
