"""``assay-stream handshake check``: check a captured list of tools against Handshake's requirements."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.models import CommandInfo

from assay_stream.canonical.decode import decode_json
from assay_stream.cli.files import read_input, tools_in
from assay_stream.cli.options import Format
from assay_stream.cli.output import RowFormat, print_json, print_line
from assay_stream.cli.shared import named_in_errors
from assay_stream.errors import InputError
from assay_stream.text.visible import shown

if TYPE_CHECKING:
    from assay_stream.schemes.handshake.conformance import ToolReport

_NAME_CHARS_MAX = 60

handshake_app = typer.Typer(help="Check captured tools against Handshake's requirements.", no_args_is_help=True)


@handshake_app.callback()
def _group() -> None:
    """Check captured tools against Handshake's requirements."""


@handshake_app.command()
def check(
    server_id: Annotated[str, typer.Option(help="Your name for the server, which may prefix its tools' ids.")],
    capture: Annotated[
        Path | None, typer.Argument(help="A tools/list result or response, or a snapshot event.")
    ] = None,
    target: Format = RowFormat.TABLE,
) -> None:
    """Check a captured list of tools against Handshake's tool conformance requirements.

    Each check of each tool reports pass, fail or not_applicable, with a reason. A pass means that the definition has
    the required form; it says nothing about what the tool does. Exit code 0: nothing fails. 1: something fails, or
    there are no tools. 2: the capture cannot be read.
    """
    from assay_stream.schemes.handshake.conformance import CheckStatus, check_tools

    raw = read_input(capture)
    with named_in_errors(capture or "standard input"):
        tools = tools_in(decode_json(raw))
        if tools is None:
            raise InputError("not_a_list", "give a tools/list result, the response around it, or a snapshot event")
        reports = check_tools(tools, server_id=server_id)
    counts: Counter[str] = Counter({status.value: 0 for status in CheckStatus})
    counts.update(answer.status.value for report in reports for answer in report.answers.values())
    if target is RowFormat.JSON:
        content = {"server_id": server_id, "counts": counts, "tools": [_as_json(report) for report in reports]}
        print_json(content)
    else:
        for line in _table(reports):
            print_line(line)
        typer.echo(", ".join(f"{number} {name}" for name, number in counts.items()))
        typer.echo("These checks cover form only. They do not say what a tool does.")
    if not reports or counts[CheckStatus.FAIL.value]:
        raise typer.Exit(1)


former_check = CommandInfo("conformance", callback=check, hidden=True)


def _as_json(report: ToolReport) -> dict[str, Any]:
    return {
        "tool": report.name,
        "tool_id": report.tool_id,
        "denied_by_default": report.denied_by_default,
        "checks": [
            {
                "check": check,
                "status": answer.status.value,
                "code": answer.code or None,
                "reason": answer.reason or None,
            }
            for check, answer in report.answers.items()
        ],
    }


def _table(reports: list[ToolReport]) -> list[str]:
    lines = []
    for report in reports:
        lines.append(f"{_shown(report.name)}  tool_id: {report.tool_id or 'none'}")
        lines.extend(
            f"  {check:<15} {answer.status.value:<15} {answer.reason}".rstrip()
            for check, answer in report.answers.items()
        )
    return lines


def _shown(name: str | None) -> str:
    if name is None:
        return "(no name)"
    plain = shown(name[: _NAME_CHARS_MAX + 1])
    return plain if len(plain) <= _NAME_CHARS_MAX else f"{plain[:_NAME_CHARS_MAX]}..."
