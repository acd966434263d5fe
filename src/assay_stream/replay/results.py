"""The results of a replay in a folder, and the point from which an interrupted one goes on.

At a *resume point* everything written so far is on the disk, and a small file says how much that is and where the
replay stands. Who goes on cuts the results to that length, so that they are the bytes of an undisturbed run.

Until a replay is done, its files end in ``.part``: a file under its own name is whole, and earlier results stay
until new ones take their place.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import IO, Any

import orjson

from assay_stream.errors import ConfigurationError
from assay_stream.files.log_spool import Log
from assay_stream.files.record_line import rejected_line
from assay_stream.limits import PROGRESS_FILE_BYTES_MAX
from assay_stream.model.record import Output, Role
from assay_stream.replay.order import Position
from assay_stream.replay.run import Checkpoint

FILES = {
    Role.EVIDENCE: "evidence.ndjson",
    Role.ALERTS: "alerts.ndjson",
    Role.DEFINITIONS: "definitions.ndjson",
    Role.CHANGES: "changes.ndjson",
    Role.REJECTED: "rejected.ndjson",
}
# Evidence is the many, and reading a member of an enum, or its hash, takes a call of its own.
_EVIDENCE, _DEFINITIONS = Role.EVIDENCE, Role.DEFINITIONS
PROGRESS_FILE = "replay.progress.json"
_PART = ".part"
LEFTOVERS = frozenset({f"{name}{_PART}" for name in FILES.values()} | {"replay.progress.new"})
"""What a replay may leave that was killed before its first resume point: nobody's results."""
_VERSION = 1

Ends = dict[Role, dict[int, int]]


class Tally:
    """What was written: counted, and each definition once, as the compacted definition topic has it."""

    def __init__(self) -> None:
        self.written: Counter[str] = Counter({role.value: 0 for role in FILES})
        self.what: Counter[str] = Counter()
        self._definitions: set[bytes | None] = set()

    def takes(self, output: Output) -> bool:
        """Count an output; tell whether it is to be written.

        Args:
            output: an output of the stages.
        """
        role = output.role
        if role is _DEFINITIONS and not self.is_new(output):
            return False
        self.what[output.label] += 1
        if role is not _EVIDENCE and role not in FILES:
            return False
        self.written[role._value_] += 1
        return True

    def is_new(self, output: Output) -> bool:
        """Note a definition; tell whether it was not there before.

        Args:
            output: a definition.
        """
        if output.key in self._definitions:
            return False
        self._definitions.add(output.key)
        return True


class Results:
    """Files of results in a folder.

    Args:
        folder: made if missing.
        what: everything that decides the bytes: who goes on must have the same.
        ends: where the topics ended that are replayed, ``None`` for files.

    Raises:
        OSError: where the folder cannot be written.
    """

    def __init__(self, folder: Path, what: dict[str, Any], *, ends: Ends | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._what: dict[str, Any] = orjson.loads(orjson.dumps(what))
        self._ends = ends
        self._files: dict[Role, IO[bytes]] = {}
        self._evidence: IO[bytes] | None = None
        self.tally = Tally()

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def begin(self) -> None:
        """Begin with empty files; an interrupted replay in this folder cannot be resumed any more."""
        (self._folder / PROGRESS_FILE).unlink(missing_ok=True)
        self._files = {role: self._part(role).open("wb", 1_024 * 1_024) for role in FILES}
        self._evidence = self._files[_EVIDENCE]

    def go_on(self) -> Checkpoint | None:
        """Cut the files to the last resume point and return where the replay stood; ``None`` where there is none.

        Raises:
            ConfigurationError: ``resume_differs``, ``bad_progress_file``.
        """
        path = self._folder / PROGRESS_FILE
        if not path.exists():
            return None
        try:
            told = orjson.loads(_progress_of(path))
            differing = sorted(
                name
                for name in self._what.keys() | told["what"].keys()
                if self._what.get(name) != told["what"].get(name)
            )
            if told["version"] != _VERSION:
                raise ValueError
            checkpoint = _read_checkpoint(told["checkpoint"])
            sizes = {role: int(told["bytes"][role.value]) for role in FILES}
            written, labels = Counter(told["written"]), Counter(told["labels"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _bad_progress(path) from None
        if differing:
            raise ConfigurationError(
                "resume_differs",
                f"the interrupted replay differed in: {', '.join(differing)}. Give the same options and inputs, "
                "or replay with --force in place of --resume",
            )
        for role in FILES:
            part = self._part(role)
            if not part.exists() or part.stat().st_size < sizes[role]:
                raise ConfigurationError(
                    "bad_progress_file", f"{part} is shorter than it was: replay with --force in place of --resume"
                )
            file = part.open("r+b", 1_024 * 1_024)
            self._files[role] = file
            file.truncate(sizes[role])
            file.seek(sizes[role])
        self._evidence = self._files[_EVIDENCE]
        self.tally.written, self.tally.what = written, labels
        return checkpoint

    def write(self, output: Output) -> None:
        """Write an output, if it belongs in a file.

        Args:
            output: an output of the stages.
        """
        if self.tally.takes(output):
            if output.role is _EVIDENCE and self._evidence is not None:
                self._evidence.write((output.value or b"") + b"\n")
                return
            line = rejected_line(output) if output.role is Role.REJECTED else output.value or b""
            self._files[output.role].write(line + b"\n")

    def resume_point(self, checkpoint: Checkpoint) -> None:
        """Make sure that a replay can go on from here.

        Args:
            checkpoint: where it stands.
        """
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        told = {
            "version": _VERSION,
            "what": self._what,
            "ends": _ends_json(self._ends),
            "checkpoint": _checkpoint_json(checkpoint),
            "bytes": {role.value: file.tell() for role, file in self._files.items()},
            "written": self.tally.written,
            "labels": self.tally.what,
        }
        path = self._folder / PROGRESS_FILE
        beside = path.with_suffix(".new")
        with beside.open("wb") as file:
            file.write(orjson.dumps(told))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    @property
    def replaces(self) -> bool:
        """Whether the folder holds results of an earlier replay."""
        return any((self._folder / name).exists() for name in FILES.values())

    def end(self) -> None:
        """Give the files their names: the results are whole, and there is nothing to go on from any more."""
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
    """Return where the topics ended when an interrupted replay began, ``None`` where there is no such replay.

    Args:
        folder: the folder of its results.

    Raises:
        ConfigurationError: ``bad_progress_file``.
    """
    path = folder / PROGRESS_FILE
    try:
        told = orjson.loads(_progress_of(path))["ends"]
        if told is None:
            return None
        return {Role(role): {int(number): int(end) for number, end in ends} for role, ends in told}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise _bad_progress(path) from None


def _progress_of(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(PROGRESS_FILE_BYTES_MAX + 1)
    if len(raw) > PROGRESS_FILE_BYTES_MAX:
        raise ValueError
    return raw


def _bad_progress(path: Path) -> ConfigurationError:
    return ConfigurationError(
        "bad_progress_file",
        f"{path} is no progress file of this version: replay with --force in place of --resume",
    )


def _ends_json(ends: Ends | None) -> list[Any] | None:
    return None if ends is None else [[role, sorted(found.items())] for role, found in sorted(ends.items())]


def _checkpoint_json(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "positions": [[*log, *position, checkpoint.done[log]] for log, position in checkpoint.positions.items()],
        "alerts": checkpoint.alerts,
        "findings": checkpoint.findings,
        "ticked_us": checkpoint.ticked_us,
        "time_us": checkpoint.time_us,
    }


def _read_checkpoint(told: dict[str, Any]) -> Checkpoint:
    return Checkpoint(
        positions={
            Log(Role(role), topic, partition): Position(offset, latest_ms)
            for role, topic, partition, offset, latest_ms, _ in told["positions"]
        },
        done={Log(Role(role), topic, partition): done for role, topic, partition, _, _, done in told["positions"]},
        alerts=told["alerts"],
        findings=int(told["findings"]),
        ticked_us=int(told["ticked_us"]),
        time_us=int(told["time_us"]),
    )
