"""``assay-stream drift``: what changed between two recordings of a server's lists, for people and pipelines."""

from pathlib import Path
from typing import Annotated, Literal

import orjson
import typer

from assay_stream.canonical.decode import decode_json
from assay_stream.cli.files import read_input
from assay_stream.cli.output import print_line
from assay_stream.cli.shared import named_in_errors, say
from assay_stream.drift.severity import DEFAULT_PROFILE, PROFILES, Level
from assay_stream.errors import InputError
from assay_stream.report.drift import NOTHING, RecordedLists, drift_findings, read_offer
from assay_stream.report.drift_formats import as_json, as_lines, as_sarif
from assay_stream.report.peer_drift import PEERS
from assay_stream.text.escaping import json_text

SeverityProfileName = Literal["soc", "mcptrust", "mcptrust-code", "assay-p60", "strict"]
LevelName = Literal["informational", "low", "medium", "high", "critical"]

_COLOURS = {Level.CRITICAL: typer.colors.RED, Level.HIGH: typer.colors.RED, Level.MEDIUM: typer.colors.YELLOW}


def drift(
    recordings: Annotated[
        list[Path], typer.Argument(metavar="[BEFORE.json] AFTER.json", help="The earlier and the later recording.")
    ],
    profile: Annotated[SeverityProfileName, typer.Option(help="Severity profile.")] = "soc",
    fail_on: Annotated[LevelName, typer.Option(help="The lowest severity that sets exit code 1.")] = "high",
    output_format: Annotated[
        Literal["table", "json", "sarif"], typer.Option("--format", help="What to print.")
    ] = "table",
    peer: Annotated[
        Literal["p60", "mcptrust"] | None,
        typer.Option("--as", help="Compare as Assay's manifest drift or MCPTrust's check does, and print its JSON."),
    ] = None,
) -> None:
    """Compare two recordings of a server's tools by meaning, or judge one as a server's first list.

    Each file holds a Tool object, a tools/list result, the JSON-RPC response around one, a snapshot event, or a
    manifest of tools, prompts, resource templates and instructions; `-` is standard input. Without BEFORE.json, or
    where it holds no item, all of the later recording is new. With --as, BEFORE.json may be the peer's own baseline, a
    declared manifest or a lockfile, and --profile and --format mean nothing. Exit code 0: nothing reaches --fail-on. 1:
    something does. 2: the input cannot be read.
    """
    *earlier, after = recordings
    if len(earlier) > 1:
        raise InputError("bad_option", "give one recording, or two")
    before = earlier[0] if earlier else None
    if peer is not None:
        if before is None:
            raise InputError("bad_option", "--as compares two recordings: give both")
        with named_in_errors(f"{before} or {after}"):
            report, fails = PEERS[peer](read_input(before), read_input(after), str(before), Level.parse(fail_on))
        print_line(json_text(orjson.dumps(report).decode()))
        raise typer.Exit(int(fails))
    was, now = NOTHING if before is None else _read(before, may_be_blank=True), _read(after)
    try:
        findings = drift_findings(was, now, profile=PROFILES[profile])
    except InputError as error:
        where = " or ".join(str(path) for path, offer in ((before, was), (after, now)) if not _is_sound(offer))
        message = f"{where or f'{before} or {after}'}: {error.message}"
        raise InputError(error.code, message, path=error.path) from None
    if output_format == "json":
        print_line(as_json(findings))
    elif output_format == "sarif":
        print_line(as_sarif(findings, after_uri=after.as_posix()))
    else:
        for level, line in as_lines(findings):
            # Colours are left out where standard output is no terminal.
            typer.echo(line if level is None else typer.style(line, fg=_COLOURS.get(level), bold=level >= Level.HIGH))
    if not now.complete and not was.is_single:
        say(f"{after} is not a complete list: nothing is called removed")
    if any(finding.level >= Level.parse(fail_on) for finding in findings):
        raise typer.Exit(1)


def _is_sound(offer: RecordedLists) -> bool:
    """Return True if a recording can be compared at all, tested by comparing it with itself."""
    try:
        drift_findings(offer, offer, profile=DEFAULT_PROFILE)
    except InputError:
        return False
    return True


def _read(path: Path, *, may_be_blank: bool = False) -> RecordedLists:
    raw = read_input(path)
    if may_be_blank and not raw.strip():
        return NOTHING
    with named_in_errors(path):
        content = decode_json(raw)
        if isinstance(content, dict) and "error" in content and content.keys() <= {"jsonrpc", "id", "error"}:
            raise InputError("not_a_tool", "this is an error response, not a list: record the list again", path="$")
        return read_offer(content)
