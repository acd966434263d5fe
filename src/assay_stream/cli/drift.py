"""``assay-stream drift``: what changed between two recordings of a server's lists, for people and pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from assay_stream.canonical.decode import decode_json
from assay_stream.cli.files import read_input
from assay_stream.cli.output import print_line
from assay_stream.cli.shared import named_in_errors, say
from assay_stream.drift.severity import DEFAULT_PROFILE, PROFILES, Level
from assay_stream.errors import InputError
from assay_stream.report.drift import Offer, drift_findings, read_offer
from assay_stream.report.drift_formats import as_json, as_lines, as_sarif

ProfileName = Literal["soc", "mcptrust", "mcptrust-code", "assay-p60", "strict"]
LevelName = Literal["informational", "low", "medium", "high", "critical"]

_COLOURS = {Level.CRITICAL: typer.colors.RED, Level.HIGH: typer.colors.RED, Level.MEDIUM: typer.colors.YELLOW}


def drift(
    before: Annotated[Path, typer.Argument(metavar="BEFORE.json", help="The earlier recording.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER.json", help="The later recording.")],
    profile: Annotated[ProfileName, typer.Option(help="Severity profile.")] = "soc",
    fail_on: Annotated[LevelName, typer.Option(help="The lowest severity that sets exit code 1.")] = "high",
    output_format: Annotated[
        Literal["table", "json", "sarif"], typer.Option("--format", help="What to print.")
    ] = "table",
) -> None:
    """Compare two recordings of a server's tools by meaning.

    Each file holds a Tool object, a tools/list result, the JSON-RPC response around one, a snapshot event, or a
    manifest of tools, prompts and resource templates. Exit code 0: nothing reaches --fail-on. 1: something does.
    2: the input cannot be read.
    """
    was, now = _read(before), _read(after)
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


def _is_sound(offer: Offer) -> bool:
    """Tell whether a recording can be compared at all: with itself."""
    try:
        drift_findings(offer, offer, profile=DEFAULT_PROFILE)
    except InputError:
        return False
    return True


def _read(path: Path) -> Offer:
    raw = read_input(path)
    with named_in_errors(path):
        content = decode_json(raw)
        if isinstance(content, dict) and "error" in content and content.keys() <= {"jsonrpc", "id", "error"}:
            raise InputError("not_a_tool", "this is an error response, not a list: record the list again", path="$")
        return read_offer(content)
