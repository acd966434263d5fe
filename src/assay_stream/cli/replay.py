"""``assay-stream replay``: the same engine over recorded observations, from files or from the topics.

Results go to a folder, or to *shadow topics* beside the live ones.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from assay_stream.cli.options import (
    EvidenceFiles,
    Force,
    FromKafka,
    Inputs,
    ProgressOption,
    SettingsOptions,
    SnapshotPartitions,
    refuse_filled_folder,
)
from assay_stream.cli.output import print_json
from assay_stream.cli.shared import NOTHING_FOUND, flag, noting_interrupts, option, say
from assay_stream.cli.sources import LOOK_EVERY, Meter, RangeOptions, Source, joined_source, make_source
from assay_stream.cli.verify import AlertFiles, hold_against, written_in
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, InputError, OperatingError
from assay_stream.files.local import locked_folder, writing_to
from assay_stream.files.spool import LogSpool
from assay_stream.kafka.connection import KafkaError, open_admin, writing_producer
from assay_stream.kafka.publishing import send_all
from assay_stream.kafka.stage import fitting
from assay_stream.kafka.topics import create_topics, topic_names, topic_table
from assay_stream.model.observation import CallProfile
from assay_stream.model.record import TOPIC_NAMES, Output, Role, murmur2_partition
from assay_stream.replay.run import FILES, LEFTOVERS, PROGRESS_FILE, Replay, Results, Tally, noted_ends
from assay_stream.text.escaping import counted

INTERRUPTED = 130
_RESUME_POINT_S = 5.0
_CUT_LINES_SHOWN_MAX = 20
_IN_FLIGHT_MAX = 5_000


def replay(
    ranges: RangeOptions,
    given: SettingsOptions,
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
    output: Path | None = option("Folder for the results; it must be empty or missing."),
    force: Force = False,
    to_kafka: bool = flag("Write to topics; missing ones are created."),
    topic_prefix: str = option("With --to-kafka: prefix of their names.", default="shadow."),
    resume: bool = flag("Continue an interrupted replay."),
    progress: ProgressOption = None,
    snapshot_partitions: SnapshotPartitions = None,
    call_profile: CallProfile | None = option("Profile that every call must satisfy. Default: from the settings."),
    compare: bool = flag(
        "Compare the result with what was recorded: in the topics, or with --input in --evidence and --alerts."
    ),
    evidence: EvidenceFiles = None,
    alerts: AlertFiles = None,
) -> int:
    """Replay recorded observations through the engine, into files or into topics beside the live ones.

    Writes evidence.ndjson, alerts.ndjson, definitions.ndjson, changes.ndjson and rejected.ndjson. The same input
    gives the same bytes. Prints a summary as one JSON object. Exit code 5 if nothing matches the selection or there is
    nothing to compare, 2 if no record could be read, 1 if a line was too long to be read whole or --compare finds a
    difference, 130 if it was interrupted.
    """
    if to_kafka == (output is not None) or (to_kafka and (resume or force)):
        raise ConfigurationError(
            "no_destination", "give a folder (--output) or --to-kafka; --resume and --force need a folder"
        )
    if output is not None and not (resume and (output / PROGRESS_FILE).exists()):
        hint = "continue with --resume, " if (output / PROGRESS_FILE).exists() else ""
        refuse_filled_folder(output, force=force, leftovers=LEFTOVERS, hint=hint)
    settings = given.settings(call_profile=call_profile)
    selection = ranges.selection()
    if (evidence or alerts) and not compare:
        raise ConfigurationError("bad_option", "--evidence and --alerts are for --compare: give it too")
    if compare and (to_kafka or selection.narrows):
        raise ConfigurationError(
            "bad_option",
            "--compare compares everything that was recorded with a replay of everything: use it with --output, and "
            "without a selection of times, offsets or servers",
        )
    if compare and (from_kafka == bool(evidence) or (from_kafka and alerts)):
        raise ConfigurationError(
            "bad_option", "with --input, --compare needs --evidence FILE; with --from-kafka it reads the topics"
        )
    ends = noted_ends(output) if resume and output is not None and from_kafka else None
    if ends is None and compare and from_kafka:
        ends = joined_source(settings).ends
    source = make_source(inputs, from_kafka, selection, settings, snapshot_partitions=snapshot_partitions, ends=ends)
    job = _Job(source=source, meter=Meter(progress))
    if output is None:
        return _into_topics(job, topic_prefix)

    def differs(spool: LogSpool, made: Replay) -> int:
        return hold_against(source, spool, made, written_in(output), evidence, alerts) if compare else 0

    with writing_to(output), locked_folder(output):
        return _into_files(job, output, resume=resume, differs=differs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    source: Source
    meter: Meter
    cut_lines: list[InputError] = field(default_factory=list)
    """Lines of which only the beginning could be read; they are rejected records of the replay."""

    def what(self) -> dict[str, Any]:
        """Return everything that determines the bytes of the results."""
        settings = self.source.settings
        work = ("work_units_max", "allowance_units_per_s", "allowance_burst_units")
        return self.source.what() | {
            "version": settings.producer().version,
            "git": settings.producer().git,
            "redaction": settings.redaction().id,
            "call_profile": settings.call_profile,
            "severity_profile": settings.severity_profile,
            "pacing": asdict(settings.pacing()),
            "work": {name: getattr(settings, name) for name in work},
        }

    def spool(self) -> LogSpool:
        return self.source.spool(meter=self.meter, too_long=self.cut_lines.append)


def _into_files(job: _Job, folder: Path, *, resume: bool, differs: Callable[[LogSpool, Replay], int]) -> int:
    with writing_to(folder):
        results = Results(folder, job.what(), ends=job.source.ends)
        checkpoint = results.resume() if resume else None
    with results, job.spool() as spool:
        with writing_to(folder):
            made = job.source.replay(spool)
            if checkpoint is None:
                results.start()
            else:
                for written in made.resume_from(checkpoint):
                    if written.role is Role.DEFINITIONS:
                        results.tally.is_new(written)
            if not _run(made, results, job.meter):
                say(f"interrupted. To continue, run the same command with --resume ({folder / PROGRESS_FILE})")
                return INTERRUPTED
            found_nothing = _is_empty(job, made)
            if results.replaces and (found_nothing or not _readable(spool, results.tally)):
                results.discard()
                say(f"the earlier results in {folder} were kept")
            elif found_nothing and not any(results.tally.written.values()):
                # Empty files would only keep the corrected command from writing there.
                results.discard()
            else:
                results.end()
        return _finish(job, results.tally, made, spool) or differs(spool, made)


def _run(made: Replay, results: Results, meter: Meter) -> bool:
    write = results.write
    noted_s, count = time.monotonic(), 0
    with noting_interrupts() as interrupts:
        for outputs in made.steps():
            for written in outputs:
                write(written)
            count += 1
            if interrupts:
                results.resume_point(made.resume_point())
                meter.end()
                return False
            if count % LOOK_EVERY == 0:
                meter.replaying(made.calls_done())
                if time.monotonic() - noted_s >= _RESUME_POINT_S:
                    results.resume_point(made.resume_point())
                    noted_s = time.monotonic()
    return True


def _into_topics(job: _Job, prefix: str) -> int:
    topics = shadow_topics(job.source.settings, FILES, prefix)
    tally = Tally()
    with job.spool() as spool:
        made = job.source.replay(spool)
        partitions = 1 + max((log.partition for log in spool.logs() if log.role is Role.CALLS), default=0)
        outputs = tally.taken(made.steps())
        asyncio.run(write_shadow(job.source.settings, topics, outputs, call_partitions=partitions))
        return _finish(job, tally, made, spool)


def shadow_topics(settings: Settings, roles: Collection[Role], prefix: str) -> dict[Role, str]:
    """Return the prefixed result topics by role.

    Raises:
        ConfigurationError: ``live_topics`` if one of them is a topic of the deployment.
    """
    names = {role: prefix + TOPIC_NAMES[role] for role in roles}
    live = {*topic_names(settings).values(), *TOPIC_NAMES.values()}
    if live & set(names.values()):
        raise ConfigurationError(
            "live_topics", "with this prefix a replay would write to the live topics: choose another --topic-prefix"
        )
    return names


async def write_shadow(
    settings: Settings, topics: dict[Role, str], outputs: Iterable[Output], *, call_partitions: int
) -> None:
    """Write results to their topics, creating missing ones.

    Args:
        topics: from ``shadow_topics``.
        call_partitions: partition count of the replayed calls.

    Raises:
        OperatingError: ``broker_unreachable``, ``shadow_failed``.
    """
    counts = await _make_topics(settings, topics, call_partitions)
    placed = (_placed(output, counts) for output in outputs)
    producer = writing_producer(settings, linger_ms=20, max_batch_size=512 * 1_024)
    try:
        await producer.start()
        while some := list(islice(placed, _IN_FLIGHT_MAX)):
            for failure in await send_all(producer, topics, some):
                if failure is not None:
                    raise failure
    except KafkaError as error:
        raise OperatingError(
            "shadow_failed", f"the brokers refused a result ({type(error).__name__}): replay again, with a new prefix"
        ) from None
    finally:
        await producer.stop()


def _placed(output: Output, counts: Mapping[Role, int]) -> Output:
    fitted, count = fitting(output) if output.role is Role.REJECTED else output, counts[output.role]
    partition = murmur2_partition(fitted.key or b"", count) if fitted.partition is None else fitted.partition % count
    return fitted._replace(partition=partition)


async def _make_topics(settings: Settings, topics: dict[Role, str], call_partitions: int) -> dict[Role, int]:
    async with open_admin(settings, waiting=say) as admin:
        specs = {spec.role: spec for spec in topic_table(settings)}
        wanted = {role: specs[role].partitions for role in topics}
        wanted[Role.EVIDENCE] = max(wanted[Role.EVIDENCE], call_partitions)
        present = set(await admin.list_topics())
        missing = [
            replace(specs[role], name=name, partitions=wanted[role])
            for role, name in topics.items()
            if name not in present
        ]
        await create_topics(admin, settings, missing)
        described = await admin.describe_topics(list(topics.values()))
        counts = {topic["topic"]: len(topic["partitions"]) for topic in described}
        return {role: counts[name] or wanted[role] for role, name in topics.items()}


def _finish(job: _Job, tally: Tally, made: Replay, spool: LogSpool) -> int:
    """Print the summary, and return the exit code."""
    job.meter.end()
    for error in job.cut_lines[:_CUT_LINES_SHOWN_MAX]:
        say(f"{error.code}: {error.message}")
    print_json({"written": tally.written, "what": dict(sorted(tally.what.items()))})
    if left_out := sum(found[2] for found in tally.refused.values()):
        say(f"{counted(left_out, 'refused record')} left out: the last rejected record of each log says from where on")
    if _is_empty(job, made):
        say("the selection matches no call: check the times, offsets and servers")
        return NOTHING_FOUND
    if not _readable(spool, tally):
        raise InputError(
            "no_readable_record",
            "the input holds no readable record: give files of observations, or an archive of them; "
            "rejected.ndjson says why each record was refused",
        )
    if job.cut_lines:
        say(f"{counted(len(job.cut_lines), 'line')} too long to read: this replay is incomplete")
    return int(bool(job.cut_lines))


def _is_empty(job: _Job, made: Replay) -> bool:
    asked = job.source.selection.narrows or job.source.ends is not None
    return asked and not any(total for _, _, total in made.calls_done())


def _readable(spool: LogSpool, tally: Tally) -> bool:
    """Return True if any record was not rejected."""
    refused = sum(count for label, count in tally.what.items() if label.startswith("rejected:"))
    return sum(map(spool.count, spool.logs())) > refused
