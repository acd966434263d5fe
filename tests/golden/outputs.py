"""What the command line makes of an archive: every output under a name of its own.

Nothing but commands and files is used, so that the same outputs can be made with any version.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pyarrow.parquet

from tests.golden.changes import as_today
from tests.support.command import run_command

Outputs = dict[str, bytes]
LATER = "2027-06-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """An archive, and how it is looked at.

    Args:
        name: of its folder.
        arguments: options of every replay.
        env: settings.
        servers: of which reports are made.
        exports: whether alerts and evidence are exported.
        variants: further replays, by name: options and settings.
    """

    name: str
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    servers: tuple[str, ...] = ()
    exports: bool = True
    variants: dict[str, tuple[tuple[str, ...], dict[str, str]]] = field(default_factory=dict)


def replayed(
    archive: Path, arguments: Sequence[str] = (), env: dict[str, str] | None = None, *, prefix: str = "replay"
) -> Outputs:
    """What a replay writes and prints; the working folder gets its results.

    Args:
        archive: the input.
        arguments: further options.
        env: settings.
        prefix: folder of the results.
    """
    command = ("replay", "--input", archive.name, "--output", prefix, *arguments)
    outputs = {f"{prefix}/summary.json": printed(*command, env=env)}
    assert Path(prefix).is_dir(), f"{archive.name}: {command} failed"
    for path in sorted(Path(prefix).iterdir()):
        outputs[f"{prefix}/{path.name}"] = path.read_bytes()
    return outputs


def reported(scenario: Scenario, archive: Path) -> Iterator[tuple[str, bytes]]:
    """Every report and export of a replay whose results stand in the folder ``replay``."""
    recorded = ("--evidence", "replay/evidence.ndjson", "--input", archive.name)
    partitions = scenario.arguments if "--snapshot-partitions" in scenario.arguments else ()
    alerts = ("--input", "replay/alerts.ndjson")
    yield (
        "compare.json",
        printed(
            "compare", *recorded, "--alerts", "replay/alerts.ndjson", *partitions, "--format", "json", env=scenario.env
        ),
    )
    yield "verify.json", printed("verify", *recorded, "--all", "--format", "json", env=scenario.env)
    yield "alerts-now.json", printed("alerts", "list", "--status", "all", "--format", "json", *alerts)
    if scenario.exports:
        for form in ("ocsf", "ecs", "cef", "sarif", "jsonl"):
            yield f"alerts.{form}", printed("alerts", "export", "--format", form, *alerts)
        yield from _exports()
    inputs = ("--input", archive.name, "--format", "json")
    for number, server in enumerate(scenario.servers):
        yield f"asof-{number}.json", printed("asof", "--server-id", server, "--at", LATER, *inputs)
        yield f"timeline-{number}.json", printed("timeline", "--server-id", server, *inputs)
    evidence = Path("replay/evidence.ndjson").read_bytes().splitlines()
    for number, line in enumerate(evidence[:: len(evidence) // 2 + 1]):
        call = orjson.loads(line)["data"]["tool_call_id"]
        yield f"trace-{number}.json", printed("trace", "--tool-call-id", call, *inputs)


def _exports() -> Iterator[tuple[str, bytes]]:
    if Path("replay/evidence.ndjson").stat().st_size:
        told = printed("export", "assay-bundle", "--input", "replay", "--output", "bundle.tar.gz")
        yield "bundle.json", told
        yield "bundle.tar.gz", Path("bundle.tar.gz").read_bytes()
        yield "bundle-verify.json", printed("bundle", "verify", "bundle.tar.gz")
    for ending in ("csv", "jsonl"):
        printed("export", "timesketch", "--input", "replay", "--output", f"timesketch.{ending}")
        yield f"timesketch.{ending}", Path(f"timesketch.{ending}").read_bytes()
    printed("export", "parquet", "--input", "replay", "--output", "parquet")
    for path in sorted(Path("parquet").iterdir()):
        yield f"parquet/{path.stem}.ndjson", _columns(path)


def _columns(path: Path) -> bytes:
    """A Parquet file's schema and rows: its bytes depend on the library's version."""
    table = pyarrow.parquet.read_table(path)
    schema = [[name, str(kind)] for name, kind in zip(table.schema.names, table.schema.types, strict=True)]
    rows = [json.dumps(schema).encode(), *(orjson.dumps(row, default=str) for row in table.to_pylist())]
    return b"".join(row + b"\n" for row in rows)


def printed(*arguments: str, env: dict[str, str] | None = None) -> bytes:
    """Standard output and JSON on standard error, followed by the exit code where it is not 0."""
    done = run_command(*arguments, stdin=b"", **(env or {}))
    notes = b"".join(line for line in done.stderr.splitlines(keepends=True) if line.startswith(b"{"))
    return done.stdout + notes + (f"exit code {done.returncode}\n".encode() if done.returncode else b"")


def all_outputs(scenario: Scenario, archive: bytes, folder: Path, recorded: Outputs | None = None) -> Outputs:
    """Every output of a scenario.

    Args:
        scenario: what to do.
        archive: the bytes of its archive.
        folder: an empty folder to work in.
        recorded: results that are reported on in place of those just replayed.
    """
    with contextlib.chdir(folder):
        path = Path("input.ndjson")
        path.write_bytes(archive)
        outputs = replayed(path, scenario.arguments, scenario.env)
        for name, (arguments, env) in scenario.variants.items():
            outputs |= replayed(path, arguments, env, prefix=name)
        for name, content in (recorded or {}).items():
            if name.startswith("replay/") and not name.endswith("summary.json"):
                Path(name).write_bytes(as_today(name, content))
        outputs |= dict(reported(scenario, path))
    return outputs
