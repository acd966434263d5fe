"""``assay-stream schemapin``: sign and verify tool schemas, and observe discovery documents."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import Digest
from assay_stream.cli.files import read_input, write_key_files
from assay_stream.cli.output import print_json
from assay_stream.cli.publishing import deliver
from assay_stream.cli.shared import Bootstrap, ObserverId, observer_or_host, quiet_client_logs, say
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.observe import Vantage
from assay_stream.schemes.schemapin.canonical import Mode, carried_signature, schema_digest
from assay_stream.schemes.schemapin.discovery import WellKnown, build_well_known, parse_revocations, parse_well_known
from assay_stream.schemes.schemapin.keys import PublicKey, load_private_key, sign_digest
from assay_stream.schemes.schemapin.verification import ErrorCode, Verification
from assay_stream.schemes.schemapin.verification import verify as verify_signature

schemapin_app = typer.Typer(
    help="Sign and verify tool schemas (SchemaPin), and observe discovery documents.", no_args_is_help=True
)

_NO_CANONICAL_FORM = frozenset({"lone_surrogate", "non_finite_number", "number_overflow", "too_deep"})
"""What strict decoding refuses in a text that is JSON to laxer readers: such a tool has no canonical form."""

Schema = Annotated[Path, typer.Option(help="One Tool object, as JSON.")]
PublicPem = Annotated[Path, typer.Option(help="PEM file with the public key.")]


@schemapin_app.command()
def keygen(
    private_key: Annotated[Path, typer.Option(help="File to write the private key to; must not exist.")],
    public_key: Annotated[Path, typer.Option(help="File to write the public key to; must not exist.")],
) -> None:
    """Make a P-256 key pair. Prints the fingerprint.

    The private key is not encrypted: its file can be read by its owner only.
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
    schema: Schema,
    key: Annotated[Path, typer.Option(help="PEM file with the private key.")],
    mode: Annotated[Mode, typer.Option(help="single_sha256 is what the Go SDK makes and checks.")] = Mode.DOUBLE_SHA256,
) -> None:
    """Print the signature of a tool, base64 of DER. A signature that the tool carries already is not covered."""
    digest = schema_digest(_object(schema))
    typer.echo(sign_digest(bytes.fromhex(digest.hex), load_private_key(read_input(key)), mode=mode))


@schemapin_app.command()
def fingerprint(
    file: Annotated[Path, typer.Argument(help="PEM file with a public key, or a discovery document.")],
) -> None:
    """Print the fingerprint of a public key."""
    raw = read_input(file)
    pem = parse_well_known(raw).public_key_pem if raw.lstrip().startswith(b"{") else raw.decode("latin-1")
    typer.echo(PublicKey.from_pem(pem).fingerprint)


@schemapin_app.command("well-known")
def well_known(
    developer_name: Annotated[str, typer.Option(help="Who signs.")],
    key: PublicPem,
    contact: Annotated[str | None, typer.Option(help="Where to write to.")] = None,
    revoked: Annotated[
        list[str] | None, typer.Option(help="Fingerprint of a revoked key. May be given several times.")
    ] = None,
) -> None:
    """Print a discovery document, to be served at https://DOMAIN/.well-known/schemapin.json."""
    public = PublicKey.from_pem(read_input(key).decode("latin-1"))
    fingerprints = [str(Digest.parse(text)) for text in revoked or []]
    if public.fingerprint in fingerprints:
        raise ConfigurationError("bad_option", "--revoked names the key of --key: publish a new key")
    document = build_well_known(public, developer_name=developer_name, contact=contact, revoked_keys=fingerprints)
    parse_well_known(document)
    print_json(document, indented=True)


@schemapin_app.command()
def verify(
    schema: Schema,
    well_known: Annotated[Path, typer.Option(help="The discovery document, as it was served.")],
    signature: Annotated[
        str | None, typer.Option(help="Base64 of DER. Default: the signature that the tool carries.")
    ] = None,
    pinned_fingerprint: Annotated[str | None, typer.Option(help="Fingerprint of the key that is pinned.")] = None,
    revocations: Annotated[
        Path | None, typer.Option(help="The domain's revocation document, as it was served.")
    ] = None,
    revoked: Annotated[
        list[str] | None, typer.Option(help="Fingerprint of a key you revoke. May be given several times.")
    ] = None,
) -> None:
    """Verify the signature of a tool. Prints one line of JSON; exit code 0 if it is valid, 1 if not.

    A valid signature says who signed, and nothing about what the tool does.
    """
    pinned = None if pinned_fingerprint is None else str(Digest.parse(pinned_fingerprint))
    all_revoked = frozenset(str(Digest.parse(text)) for text in revoked or [])
    if revocations is not None:
        all_revoked |= parse_revocations(read_input(revocations, cut=True)).revoked_keys
    digest, carried = _digest_and_signature(schema)
    if signature is None:
        signature = carried
    if signature is None:
        raise ConfigurationError("bad_option", "the tool carries no signature: give --signature")
    found = _verify(digest, signature, read_input(well_known, cut=True), pinned, all_revoked)
    line = {"valid": found.valid, "mode": found.mode, "fingerprint": found.fingerprint, "error_code": found.error_code}
    typer.echo(json.dumps(line))
    raise typer.Exit(0 if found.valid else 1)


@schemapin_app.command()
def fetch(
    domain: Annotated[str, typer.Option(help="Whose document: example.com, or example.com:8443.")],
    server_id: Annotated[str, typer.Option(help="Your name for the server whose tools it signs.")],
    observer_id: ObserverId = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="PEM file with the only CA certificates to accept. Default: the usual ones.")
    ] = None,
    revocation_domain: Annotated[
        str | None, typer.Option(help="Host that may serve the revocation document. Default: the domain itself.")
    ] = None,
    timeout_s: Annotated[float, typer.Option(help="Seconds for the whole fetch.", min=0.1, max=300.0)] = 10.0,
    output: Annotated[
        Path | None,
        typer.Option(help="Add the observation to this NDJSON file instead of Kafka; `-` for standard output."),
    ] = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Fetch a domain's discovery document over HTTPS, with its revocation document, and publish what was found.

    A failure is published too: the stream then goes on with the document it saw last. Redirects are followed
    within the same host and port only. Exit code 1 if the fetch failed or the document is refused.
    """
    # It takes a quarter of a second to import, which no other command needs.
    from assay_stream.observe.discovery import discovery_event, fetch_well_known

    quiet_client_logs()
    vantage = Vantage(server_id=server_id, observer_id=observer_or_host(observer_id))
    fetched = asyncio.run(
        fetch_well_known(domain, timeout_s=timeout_s, ca_file=ca_file, revocation_domain=revocation_domain)
    )
    event = discovery_event(vantage, fetched, event_id=str(uuid.uuid4()), observed_at=datetime.now(UTC))
    target = sys.stdout.buffer if output == Path("-") else output
    asyncio.run(deliver(iter([event]), target, bootstrap_servers))
    if fetched.error_code is not None:
        say(f"{fetched.error_code}: {fetched.url}: {fetched.detail}; published as such")
        raise typer.Exit(1)
    say(f"published the document of {fetched.url}")


def _verify(
    digest: Digest | None, signature: str, raw: bytes, pinned: str | None, operator_revoked: frozenset[str]
) -> Verification:
    document: WellKnown
    try:
        document = parse_well_known(raw)
    except InputError as error:
        say(str(error))
        return Verification(valid=False, error_code=ErrorCode.DISCOVERY_INVALID)
    return verify_signature(digest, signature, document, pinned_fingerprint=pinned, operator_revoked=operator_revoked)


def _digest_and_signature(schema: Path) -> tuple[Digest | None, str | None]:
    try:
        tool = _object(schema)
        return schema_digest(tool), carried_signature(tool)
    except InputError as error:
        if error.code not in _NO_CANONICAL_FORM:
            raise
        say(str(error))
        return None, None


def _object(path: Path) -> dict[str, Any]:
    raw = read_input(path)
    try:
        content = decode_json(raw)
    except InputError as error:
        raise InputError(error.code, f"{path}: {error.message}", path=error.path) from None
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        raise InputError("not_a_tool", f"{path}: give one Tool object, with its name", path="$")
    return content
