"""Replay: recorded observations through the same processors, into a folder, from which an interrupted one resumes.

Time advances with the event times of what is replayed: once they are a minute further, and at the last record, what is
due by then is written, as a worker's ticks would have it written. Nothing is written for the time after the last
record: the records do not say whether an alert would have been closed or repeated then.

What a live worker did not know in time a replay may know: a comparison calls that a late snapshot.

An interrupted replay resumes from a *resume point* between two records. It holds what calls have changed: how far each
log was read, and the states of alerts. All else follows from snapshots and control records, which are few and are
applied again.

At a *resume point* everything written so far is on the disk, and a small file says how much that is and where the
replay stands. Resuming cuts the results to that length, so that they are the bytes of an undisturbed run.

Until a replay is done its files end in ``.part``: a file under its own name is whole, and earlier results stay until
new ones take their place.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from assay_stream.alerts import processor as alerting
from assay_stream.alerts.remembered import Alerts, state_json, state_of
from assay_stream.alerts.rules import AlertRules
from assay_stream.bindings.state import Bindings
from assay_stream.canonical.digest import DEFAULT_REDACTION, Redaction
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.lines import rejected_line
from assay_stream.files.spool import Log, LogSpool
from assay_stream.join import Join, process_calls
from assay_stream.limits import DEFAULT_LIMITS, PROGRESS_FILE_BYTES_MAX, REFUSED_BYTES_MAX, REFUSED_RECORDS_MAX, Limits
from assay_stream.model.cloudevents import Call
from assay_stream.model.evidence import Producer
from assay_stream.model.finding import Tick
from assay_stream.model.observation import CallProfile
from assay_stream.model.record import LEFT_OUT_HEADER, Origin, Output, Record, Role, made_of, rejected, size_bytes
from assay_stream.replay.log_cut import Registries
from assay_stream.replay.order import LogPosition, Merge, Placed


def _is_of(placed: Placed, event: Call | InputError, server_ids: Collection[str]) -> bool:
    """Return True if a call is to one of these servers; a refused call is matched by its key."""
    if isinstance(event, InputError):
        key = placed.record.key
        return key is not None and key.decode("utf-8", "replace") in server_ids
    return event.server_id in server_ids


_FINDING_TOPIC = "replay"
_TICK_US = 60_000_000
"""How far event time advances between two looks at what is due."""
_STEPS_MAX = 400
"""Steps in which time advances after the last record: more than a year of days."""


class ResumePoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a replay stands between two records.

    Args:
        logs: how far each log was replayed, and how many of its records were.
    """

    logs: list[tuple[Log, LogPosition, int]]
    alerts: dict[str, dict[str, Any]]
    findings: int
    ticked_us: int
    time_us: int


class Replay:
    """The stages over everything in a spool.

    Args:
        snapshot_partitions: partition count of the snapshot topic, ``None`` if unknown.
        server_ids: replay the calls of these servers only; ``None`` for all.
        take_fact: gets every record of the binding topic, which is no result of a replay.
    """

    def __init__(
        self,
        spool: LogSpool,
        *,
        producer: Producer,
        limits: Limits = DEFAULT_LIMITS,
        snapshot_partitions: int | None = None,
        redaction: Redaction = DEFAULT_REDACTION,
        call_profile: CallProfile = "assay",
        server_ids: Collection[str] | None = None,
        alert_rules: AlertRules | None = None,
        take_fact: Callable[[Output], None] | None = None,
    ) -> None:
        self._take_fact = take_fact
        self.snapshot_partitions = snapshot_partitions
        self._server_ids = None if server_ids is None else frozenset(server_ids)
        view = Bindings(home_partitions=snapshot_partitions)
        self._registries = Registries(view, producer=producer, limits=limits, partitions=snapshot_partitions)
        self._join = Join(
            producer=producer, bindings=view, limits=limits, redaction=redaction, call_profile=call_profile
        )
        self._alerts = Alerts(AlertRules(version=producer.version) if alert_rules is None else alert_rules)
        self._spool = spool
        self._merge = Merge(spool, limits=limits, call_profile=call_profile)
        self._positions = [LogPosition()] * len(self._merge.logs)
        self._done = [0] * len(self._merge.logs)
        self._findings = 0
        self._ticked_us = self._time_us = 0

    @property
    def time_us(self) -> int:
        """Event time of the latest record, microseconds since the epoch."""
        return max(self._ticked_us, self._time_us)

    def calls_done(self) -> list[tuple[str, int, int]]:
        """Return the name of each partition of calls, how many were replayed, and how many there are."""
        return [
            (f"{log.topic}:{log.partition}", done, self._spool.count(log))
            for log, done in zip(self._merge.logs, self._done, strict=True)
            if log.role is Role.CALLS
        ]

    def resume_point(self) -> ResumePoint:
        return ResumePoint(
            logs=list(zip(self._merge.logs, self._positions, self._done, strict=True)),
            alerts={key: state_json(value) for key, value in self._alerts.states.items()},
            findings=self._findings,
            ticked_us=self._ticked_us,
            time_us=self._time_us,
        )

    def resume_from(self, point: ResumePoint) -> list[Output]:
        """Bring the state to a resume point of another replay of the same records.

        Return what snapshots and control records wrote up to there, without alerts.
        """
        outputs: list[Output] = []
        for placed in self._merge.read_applied({log: position for log, position, _ in point.logs}):
            outputs += self._register(placed.record)
        before = {log: (position, done) for log, position, done in point.logs}
        found = [before.get(log, (LogPosition(), 0)) for log in self._merge.logs]
        self._positions, self._done = [position for position, _ in found], [done for _, done in found]
        self._alerts.keep({key: state_of(key, content) for key, content in point.alerts.items()})
        self._findings = point.findings
        self._ticked_us, self._time_us = point.ticked_us, point.time_us
        return outputs

    def steps(self) -> Iterator[list[Output]]:
        """Yield the outputs of each record; the last list belongs to the end."""
        positions, done = self._positions, self._done
        wanted = self._server_ids
        for each in self._merge.read(dict(zip(self._merge.logs, positions, strict=True))):
            time_ms, log, offset, record, event, latest_ms = each
            outputs: list[Output] = []
            self._time_us = time_us = time_ms * 1_000
            if time_us >= self._ticked_us + _TICK_US:
                self._ticked_us = time_us
                self._tick(time_us, outputs)
            if event is None:
                self._follow(self._register(record), outputs)
            elif wanted is None or _is_of(each, event, wanted):
                (written,) = process_calls(self._join, ((record, event),))
                if len(written) == 1:
                    outputs += written  # evidence, or the rejected copy: most calls
                else:
                    self._follow(written, outputs)
            positions[log] = made_of(LogPosition, (offset, latest_ms))
            done[log] += 1
            yield outputs
        outputs = []
        # Times may go back in the merged order: a partition keeps its own.
        self._tick(self.time_us, outputs)
        yield outputs

    def advance_time(self, until_us: int) -> Iterator[list[Output]]:
        """Yield the alerts that a worker would write after the last record, until an event time in microseconds."""
        pacing = self._alerts.rules.pacing
        # The end of an alert is dated by when it was seen, and written once it has settled.
        until_us += max(pacing.settle_us, pacing.repeat_interval_us)
        time_us = self.time_us
        # An alert may be dated thousands of years ahead.
        step_us = max(pacing.repeat_interval_us, (until_us - time_us) // _STEPS_MAX)
        while time_us < until_us and self._alerts.any_due_by(until_us):
            time_us = min(time_us + step_us, until_us)
            outputs: list[Output] = []
            self._tick(time_us, outputs)
            yield outputs

    def _register(self, record: Record) -> list[Output]:
        """Apply a snapshot or control record; return what its registry writes beside facts."""
        outputs = []
        for output in self._registries.process(record):
            if output.role is not Role.BINDINGS:
                outputs.append(output)
            elif self._take_fact is not None:
                self._take_fact(output)
        return outputs

    def _follow(self, written: Iterable[Output], outputs: list[Output]) -> None:
        for output in written:
            outputs.append(output)
            if output.role is Role.FINDINGS:
                outputs += self._alerts_of(output.key, output.value, output.headers, output.timestamp_ms)

    def _tick(self, time_us: int, outputs: list[Output]) -> None:
        while self._alerts.any_due_by(time_us):
            outputs += self._alerts_of(b"", Tick(time_us=time_us).encode())

    def _alerts_of(self, *finding: Any) -> list[Output]:
        """Feed a record back: its key, value, headers and timestamp."""
        origin = Origin(topic=_FINDING_TOPIC, partition=0, offset=self._findings)
        self._findings += 1
        return alerting.process(self._alerts, Record(Role.FINDINGS, origin, *finding))


FILES = {
    Role.EVIDENCE: "evidence.ndjson",
    Role.ALERTS: "alerts.ndjson",
    Role.DEFINITIONS: "definitions.ndjson",
    Role.CHANGES: "changes.ndjson",
    Role.REJECTED: "rejected.ndjson",
}
# Evidence is the bulk, and reading a member of an enum, or hashing it, takes a call of its own.
_EVIDENCE, _DEFINITIONS, _REJECTED = Role.EVIDENCE, Role.DEFINITIONS, Role.REJECTED
PROGRESS_FILE = "replay.progress.json"
_PART = ".part"
LEFTOVERS = frozenset({f"{name}{_PART}" for name in FILES.values()} | {"replay.progress.new"})
"""What a replay killed before its first resume point may leave: nobody's results."""
_VERSION = 3
_DIGITS_MAX = 18

Ends = dict[Role, dict[int, int]]


class _Progress(Struct, kw_only=True, forbid_unknown_fields=True):
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
        if role is not _EVIDENCE and (role not in FILES or (role is _REJECTED and self._leaves_out(output))):
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
        self._files: dict[str, IO[bytes]] = {}
        self.tally = Tally()

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        # Each is closed, even if the disk is too full to close the one before.
        with ExitStack() as held:
            for file in self._files.values():
                held.callback(file.close)

    def start(self) -> None:
        """Start with empty files; an interrupted replay in this folder can no longer be resumed."""
        (self._folder / PROGRESS_FILE).unlink(missing_ok=True)
        self._files = {role.value: self._part(role).open("wb", 1_024 * 1_024) for role in FILES}

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
            file = self._files[role.value] = part.open("r+b", 1_024 * 1_024)
            file.truncate(progress.sizes_bytes[role])
            file.seek(0, os.SEEK_END)
        tally = self.tally
        tally.written, tally.what, tally.refused = Counter(progress.written), Counter(progress.labels), progress.refused
        return progress.resume_point

    def write(self, output: Output) -> None:
        if self.tally.takes(output):
            line = rejected_line(output) if output.role is _REJECTED else output.value or b""
            self._files[output.role._value_].write(line + b"\n")

    def resume_point(self, point: ResumePoint) -> None:
        """Make sure that a replay can resume from here."""
        self._sync()
        progress = _Progress(
            what=self._what,
            ends=self._ends,
            resume_point=point,
            sizes_bytes={Role(role): file.tell() for role, file in self._files.items()},
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
        self._files[Role.REJECTED.value].writelines(rejected_line(output) + b"\n" for output in self.tally.left_out())
        self._sync()
        for file in self._files.values():
            file.close()
        for role, name in FILES.items():
            self._part(role).replace(self._folder / name)
        (self._folder / PROGRESS_FILE).unlink(missing_ok=True)

    def discard(self) -> None:
        """Drop what was written; what the folder held before stays."""
        for role, file in self._files.items():
            file.close()
            self._part(Role(role)).unlink(missing_ok=True)
        (self._folder / PROGRESS_FILE).unlink(missing_ok=True)

    def _sync(self) -> None:
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())

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
