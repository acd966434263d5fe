"""``assay-stream fingerprint``, ``validate``, ``handshake``, ``drift``, ``schemapin``: definitions in files."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
import typer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import Digest
from assay_stream.cli.options import (
    STANDARD_INPUT,
    Bootstrap,
    Format,
    ObserverId,
    input_lines,
    observer_or_host,
    read_input,
    tools_in,
    write_key_files,
)
from assay_stream.cli.output import print_json, print_line, refusal
from assay_stream.cli.publishing import deliver
from assay_stream.cli.shared import argument, option, say
from assay_stream.drift.severity import DEFAULT_PROFILE, PROFILES, Level
from assay_stream.errors import ConfigurationError, InputError, named_in_errors
from assay_stream.files.local import path_text
from assay_stream.model.cloudevents import read_event
from assay_stream.model.record import CALL_TYPE, Origin, Record, Role
from assay_stream.observe import Vantage
from assay_stream.report.drift import (
    NOTHING,
    PEERS,
    RecordedLists,
    as_json,
    as_lines,
    as_sarif,
    drift_findings,
    read_offer,
)
from assay_stream.schemes import assay_tool, fingerprint as core, handshake_event as handshake
from assay_stream.schemes.schemapin import (
    PublicKey,
    SchemaPinErrorCode,
    Verification,
    build_well_known,
    load_private_key,
    parse_revocations,
    parse_well_known,
    sign_digest,
    verify as verify_signature,
)
from assay_stream.schemes.schemapin_canonical import Mode, carried_signature, schema_digest
from assay_stream.text.escaping import json_text, shown

if TYPE_CHECKING:
    from assay_stream.schemes.handshake_contract import ToolReport

_OF_A_TOOL = ("name", "description", "inputSchema", "input_schema")


def fingerprint(
    files: list[Path] | None = argument("Tool objects or tools/list results. Default: stdin."),
    server_id: str | None = option("Server that the definitions are scoped to (assay.v1)."),
) -> None:
    """Print the fingerprints of tool definitions: one JSON object per tool.

    FILE holds one Tool object, a tools/list result, or the JSON-RPC response around one.
    """
    for path in files or [STANDARD_INPUT]:
        raw = read_input(path)
        with named_in_errors(path):
            content = decode_json(raw)
            tools = tools_in(content)
            if tools is None and (not isinstance(content, dict) or content.keys().isdisjoint(_OF_A_TOOL)):
                raise InputError("not_a_tool", "give a Tool object or a tools/list result", path="$")
            tools = [content] if tools is None else tools
            named = [(each.get("name"), core.fingerprint(each, server_id=server_id)) for each in tools]
        for name, found in named:
            values = {scheme: found.schemes.get(scheme) for scheme in core.SCHEMES}
            stated = name if isinstance(name, str) else None
            print_json({"tool": stated, "fingerprints": values, "errors": dict(found.errors)})


EventProfileName = Literal["assay", "handshake", "handshake-published", "htc"]


def validate(
    profile: Annotated[EventProfileName, option("The profile to check each line against; see below.")],
    file: Path | None = argument("NDJSON, one value a line; standard input by default."),
) -> bool:
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
        verdict: dict[str, Any] = {"valid": True, "code": None, "path": None, "message": None}
        try:
            check(raw)
        except InputError as error:
            invalid += 1
            verdict = refusal(error)
        print_json({"line": number, **verdict})
    if not lines:
        say(f"{file or 'standard input'} is empty: nothing was checked")
    return bool(invalid) or not lines


def _check_of(profile: EventProfileName) -> Callable[[bytes], None]:
    if profile == "htc":
        # jsonschema takes longer to load than the other profiles to run.
        from assay_stream.schemes.handshake_contract import check_envelope

        return check_envelope

    def check(raw: bytes) -> None:
        content = decode_json(raw)
        if not isinstance(content, dict):
            raise InputError("wrong_type", "a line must be one JSON object", path="$")
        if profile != "assay":
            handshake.check_tool_call(content, profile=handshake.PROFILES[profile])
        elif content.get("type") == CALL_TYPE:
            read_event(Record(role=Role.CALLS, origin=Origin("", 0, 0), key=None, value=raw))
        elif "specversion" in content:
            assay_tool.check_envelope(content)
        else:
            assay_tool.check_payload(content)

    return check


_NAME_CHARS_MAX = 60

handshake_app = typer.Typer(help="Check captured tools against Handshake's requirements.", no_args_is_help=True)


@handshake_app.command()
def check(
    server_id: Annotated[str, option("Your name for the server, which may prefix its tools' ids.")],
    capture: Path | None = argument("A tools/list result or response, or a snapshot event."),
    target: Format = "table",
) -> bool:
    """Check a captured list of tools against Handshake's tool conformance requirements.

    Each check of each tool reports pass, fail or not_applicable, with a reason. A pass means that the definition has
    the required form; it says nothing about what the tool does. Exit code 0: nothing fails. 1: something fails, or
    there are no tools. 2: the capture cannot be read.
    """
    from assay_stream.schemes.handshake_contract import CheckStatus, check_tools

    raw = read_input(capture)
    with named_in_errors(capture or "standard input"):
        tools = tools_in(decode_json(raw))
        if tools is None:
            raise InputError("not_a_list", "give a tools/list result, the response around it, or a snapshot event")
        reports = check_tools(tools, server_id=server_id)
    counts: Counter[str] = Counter({status.value: 0 for status in CheckStatus})
    counts.update(answer.status.value for report in reports for answer in report.answers.values())
    if target == "json":
        print_json({"server_id": server_id, "counts": counts, "tools": [_as_json(report) for report in reports]})
    else:
        for report in reports:
            print_line(f"{_shown(report.name)}  tool_id: {report.tool_id or 'none'}")
            for check, answer in report.answers.items():
                print_line(f"  {check:<15} {answer.status.value:<15} {answer.reason}".rstrip())
        typer.echo(", ".join(f"{number} {name}" for name, number in counts.items()))
        typer.echo("These checks cover form only. They do not say what a tool does.")
    return not reports or bool(counts[CheckStatus.FAIL.value])


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


def _shown(name: str | None) -> str:
    if name is None:
        return "(no name)"
    plain = shown(name[: _NAME_CHARS_MAX + 1])
    return plain if len(plain) <= _NAME_CHARS_MAX else f"{plain[:_NAME_CHARS_MAX]}..."


SeverityProfileName = Literal["soc", "mcptrust", "mcptrust-code", "assay-p60", "strict"]
LevelName = Literal["informational", "low", "medium", "high", "critical"]

_COLOURS = {Level.CRITICAL: typer.colors.RED, Level.HIGH: typer.colors.RED, Level.MEDIUM: typer.colors.YELLOW}


def drift(
    recordings: Annotated[
        list[Path], argument("The earlier and the later recording.", metavar="[BEFORE.json] AFTER.json")
    ],
    profile: SeverityProfileName | None = option("Severity profile. Default: soc."),
    fail_on: LevelName = option("The lowest severity that sets exit code 1.", default="high"),
    output_format: Literal["table", "json", "sarif"] | None = option("What to print. Default: table.", "--format"),
    peer: Literal["p60", "mcptrust"] | None = option(
        "Compare as Assay's manifest drift or MCPTrust's check does, and print its JSON.", "--as"
    ),
) -> bool:
    """Compare two recordings of a server's tools by meaning, or judge one as a server's first list.

    Each file holds a Tool object, a tools/list result, the JSON-RPC response around one, a snapshot event, or a
    manifest of tools, prompts, resource templates and instructions; `-` is standard input. Without BEFORE.json, or
    where it holds no item, all of the later recording is new. With --as, BEFORE.json may be the peer's own baseline, a
    declared manifest or a lockfile; the severities are the peer's. Exit code 0: nothing reaches --fail-on. 1: something
    does. 2: the input cannot be read.
    """
    *earlier, after = recordings
    if len(earlier) > 1:
        raise InputError("bad_option", "give one recording, or two")
    before = earlier[0] if earlier else None
    if peer is not None:
        if before is None:
            raise InputError("bad_option", "--as compares two recordings: give both")
        if profile is not None or output_format not in (None, "json"):
            raise InputError(
                "bad_option", "--as prints JSON with the peer's severities: leave --profile and --format out"
            )
        with named_in_errors(f"{before} or {after}"):
            report, fails = PEERS[peer](read_input(before), read_input(after), path_text(before), Level.parse(fail_on))
        print_line(json_text(orjson.dumps(report).decode()))
        return fails
    was, now = NOTHING if before is None else _read(before, may_be_blank=True), _read(after)
    try:
        findings = drift_findings(was, now, profile=PROFILES[profile or "soc"])
    except InputError:
        where = " or ".join(str(path) for path, offer in ((before, was), (after, now)) if not _is_sound(offer))
        with named_in_errors(where or f"{before} or {after}"):
            raise
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
    return any(finding.level >= Level.parse(fail_on) for finding in findings)


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


schemapin_app = typer.Typer(
    help="Sign and verify tool schemas (SchemaPin), and observe discovery documents.", no_args_is_help=True
)

_NO_CANONICAL_FORM = frozenset({"lone_surrogate", "non_finite_number", "number_overflow", "too_deep"})
"""What strict decoding refuses in a text that is JSON to laxer readers: such a tool has no canonical form."""

ToolFileOption = Annotated[Path, option("One Tool object, as JSON.")]


@schemapin_app.command()
def keygen(
    private_key: Annotated[Path, option("New file for the private key.")],
    public_key: Annotated[Path, option("New file for the public key.")],
) -> None:
    """Generate a P-256 key pair, and print its fingerprint.

    The private key is not encrypted; only its owner can read the file.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    private_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = PublicKey.of(key.public_key())
    write_key_files((private_key, private_pem), (public_key, public.pem.encode()))
    typer.echo(public.fingerprint)


@schemapin_app.command()
def sign(
    schema: ToolFileOption,
    key: Annotated[Path, option("PEM file with the private key.")],
    mode: Mode = option("The Go SDK uses single_sha256.", default=Mode.DOUBLE_SHA256),
) -> None:
    """Print the signature of a tool (DER, base64). It does not cover a signature that the tool already carries."""
    digest = schema_digest(_object_in(schema))
    typer.echo(sign_digest(bytes.fromhex(digest.hex), load_private_key(read_input(key)), mode=mode))


@schemapin_app.command("fingerprint")
def key_fingerprint(file: Annotated[Path, argument("PEM file with a public key, or a discovery document.")]) -> None:
    """Print the fingerprint of a public key."""
    raw = read_input(file)
    pem = parse_well_known(raw).public_key_pem if raw.lstrip().startswith(b"{") else raw.decode("latin-1")
    typer.echo(PublicKey.from_pem(pem).fingerprint)


@schemapin_app.command("well-known")
def well_known(
    developer_name: Annotated[str, option("Who signs.")],
    key: Annotated[Path, option("PEM file with the public key.")],
    contact: str | None = option("Contact address."),
    revoked: list[str] | None = option("Fingerprint of a revoked key. Repeatable."),
) -> None:
    """Print a discovery document to serve at https://DOMAIN/.well-known/schemapin.json."""
    public = PublicKey.from_pem(read_input(key).decode("latin-1"))
    fingerprints = [str(Digest.parse(text)) for text in revoked or []]
    if public.fingerprint in fingerprints:
        raise ConfigurationError("bad_option", "--revoked names the key of --key: publish a new key")
    document = build_well_known(public, developer_name=developer_name, contact=contact, revoked_keys=fingerprints)
    parse_well_known(document)
    print_json(document, indented=True)


@schemapin_app.command()
def verify(
    schema: ToolFileOption,
    well_known: Annotated[Path, option("The discovery document, as it was served.")],
    signature: str | None = option("DER, base64. Default: the one in the tool."),
    pinned_fingerprint: str | None = option("Fingerprint of the pinned key."),
    revocations: Path | None = option("The domain's revocation document, as served."),
    revoked: list[str] | None = option("Fingerprint of a key you revoke. Repeatable."),
) -> bool:
    """Verify the signature of a tool. Prints one line of JSON; exit code 0 if it is valid, 1 if not.

    A valid signature says who signed. It says nothing about what the tool does.
    """
    pinned = None if pinned_fingerprint is None else str(Digest.parse(pinned_fingerprint))
    all_revoked = frozenset(str(Digest.parse(text)) for text in revoked or [])
    if revocations is not None:
        listed = read_input(revocations, cut=True)
        with named_in_errors(revocations):
            all_revoked |= parse_revocations(listed).revoked_keys
    digest: Digest | None = None
    carried: str | None = None
    try:
        tool = _object_in(schema)
        digest, carried = schema_digest(tool), carried_signature(tool)
    except InputError as error:
        if error.code not in _NO_CANONICAL_FORM:
            raise
        say(str(error))
    if signature is None:
        signature = carried
    if signature is None:
        raise ConfigurationError("bad_option", "the tool carries no signature: pass --signature")
    raw = read_input(well_known, cut=True)
    try:
        with named_in_errors(well_known):
            document = parse_well_known(raw)
    except InputError as error:
        say(str(error))
        found = Verification(valid=False, error_code=SchemaPinErrorCode.DISCOVERY_INVALID)
    else:
        found = verify_signature(digest, signature, document, pinned_fingerprint=pinned, operator_revoked=all_revoked)
    typer.echo(json.dumps({name: getattr(found, name) for name in ("valid", "mode", "fingerprint", "error_code")}))
    return not found.valid


@schemapin_app.command()
def fetch(
    domain: Annotated[str, option("Domain that serves the document: example.com, or example.com:8443.")],
    server_id: Annotated[str, option("Your name for the server whose tools the key signs.")],
    observer_id: ObserverId = None,
    ca_file: Path | None = option("PEM file of accepted CAs. Default: the system's."),
    revocation_domain: str | None = option("Host of the revocation document. Default: the domain."),
    timeout_s: float = option("Time limit of the whole command, seconds.", default=10.0, min=0.1, max=300.0),
    output: Path | None = option("Append to this NDJSON file, not to Kafka; `-`: stdout."),
    bootstrap_servers: Bootstrap = None,
) -> bool:
    """Fetch a domain's discovery and revocation documents over HTTPS, and publish the result.

    A failure is published too; the stream then continues with the last document it saw. Redirects are followed only
    within the same host and port. Exit code 1 if the fetch failed or the document is refused.
    """
    # It takes a quarter of a second to import, and no other command needs it.
    from assay_stream.observe.discovery import discovery_event, fetch_well_known

    vantage = Vantage(server_id=server_id, observer_id=observer_or_host(observer_id))
    fetched = asyncio.run(
        fetch_well_known(domain, timeout_s=timeout_s, ca_file=ca_file, revocation_domain=revocation_domain)
    )
    event = discovery_event(vantage, fetched, event_id=str(uuid.uuid4()), observed_at=datetime.now(UTC))
    target = sys.stdout.buffer if output == STANDARD_INPUT else output
    deliver([event], target, bootstrap_servers)
    if fetched.error_code is not None:
        say(f"{fetched.error_code}: {fetched.fetched_from}: {fetched.detail}; the failure is published")
    else:
        say(f"published the document of {fetched.fetched_from}")
    return fetched.error_code is not None


def _object_in(path: Path) -> dict[str, Any]:
    raw = read_input(path)
    with named_in_errors(path):
        content = decode_json(raw)
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        raise InputError("not_a_tool", f"{path}: give one Tool object, with its name", path="$")
    return content
