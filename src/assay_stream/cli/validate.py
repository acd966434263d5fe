"""``assay-stream validate``: check records against a profile, one verdict a line."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from assay_stream.canonical.decode import decode_json
from assay_stream.cli.files import input_lines
from assay_stream.cli.output import print_json
from assay_stream.cli.shared import say
from assay_stream.errors import InputError
from assay_stream.model.cloudevents import read_event
from assay_stream.model.record import CALL_TYPE, Origin, Record, Role
from assay_stream.schemes.assay import payload
from assay_stream.schemes.handshake import event as handshake

EventProfileName = Literal["assay", "handshake", "handshake-published", "htc"]
_Check = Callable[[bytes], None]


def validate(
    profile: Annotated[EventProfileName, typer.Option(help="What each line must be; see below.")],
    file: Annotated[Path | None, typer.Argument(help="NDJSON, one value a line; standard input by default.")] = None,
) -> None:
    """Check records against a profile: one JSON verdict per line.

    assay: a decision payload, the evidence record around one, or an observed call. handshake: a tool call event
    (FR-EVT-007) as Handshake's recorder takes it; handshake-published: as its text demands. htc: an HTC-1.0
    request or response.

    A verdict has line, valid, code, path and message. Exit code 0 if every line is valid, 1 if any is not or there
    is none, 2 if the file cannot be read. Valid means that the form is met: it says nothing about what a tool
    does.
    """
    check = _check_of(profile)
    lines = invalid = 0
    for number, raw in input_lines(file):
        lines += 1
        verdict = _verdict(number, raw, check)
        invalid += not verdict["valid"]
        print_json(verdict)
    if not lines:
        say(f"{file or 'standard input'} is empty: nothing was checked")
    if invalid or not lines:
        raise typer.Exit(1)


def _verdict(number: int, raw: bytes, check: _Check) -> dict[str, Any]:
    try:
        check(raw)
    except InputError as error:
        return {"line": number, "valid": False, "code": error.code, "path": error.path, "message": error.message}
    return {"line": number, "valid": True, "code": None, "path": None, "message": None}


def _check_of(profile: EventProfileName) -> _Check:
    if profile == "assay":
        return _check_assay
    if profile == "htc":
        # jsonschema takes longer to load than the other profiles to run.
        from assay_stream.schemes.handshake.htc import check_envelope

        return check_envelope
    return lambda raw: handshake.check_tool_call(_object(raw), profile=handshake.PROFILES[profile])


def _check_assay(raw: bytes) -> None:
    content = _object(raw)
    if content.get("type") == CALL_TYPE:
        read_event(Record(role=Role.CALLS, origin=Origin("", 0, 0), key=None, value=raw))
    elif "specversion" in content:
        payload.check_envelope(content)
    else:
        payload.check_payload(content)


def _object(raw: bytes) -> dict[str, Any]:
    content = decode_json(raw)
    if not isinstance(content, dict):
        raise InputError("wrong_type", "a line must be one JSON object", path="$")
    return content
