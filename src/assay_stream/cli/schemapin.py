"""``assay-stream schemapin``: sign and verify tool schemas, and observe discovery documents."""

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
from assay_stream.cli.options import Bootstrap, ObserverId, observer_or_host
from assay_stream.cli.output import print_json
from assay_stream.cli.parameters import argument, option
from assay_stream.cli.publishing import deliver
from assay_stream.cli.shared import named_in_errors, say
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.observe import Vantage
from assay_stream.schemes.schemapin.canonical import Mode, carried_signature, schema_digest
from assay_stream.schemes.schemapin.discovery import build_well_known, parse_revocations, parse_well_known
from assay_stream.schemes.schemapin.keys import PublicKey, load_private_key, sign_digest
from assay_stream.schemes.schemapin.verification import SchemaPinErrorCode, Verification
from assay_stream.schemes.schemapin.verification import verify as verify_signature

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
    digest = schema_digest(_object(schema))
    typer.echo(sign_digest(bytes.fromhex(digest.hex), load_private_key(read_input(key)), mode=mode))


@schemapin_app.command()
def fingerprint(file: Annotated[Path, argument("PEM file with a public key, or a discovery document.")]) -> None:
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
        all_revoked |= parse_revocations(read_input(revocations, cut=True)).revoked_keys
    digest, carried = _digest_and_signature(schema)
    if signature is None:
        signature = carried
    if signature is None:
        raise ConfigurationError("bad_option", "the tool carries no signature: pass --signature")
    found = _verify(digest, signature, read_input(well_known, cut=True), pinned, all_revoked)
    typer.echo(json.dumps({name: getattr(found, name) for name in ("valid", "mode", "fingerprint", "error_code")}))
    return not found.valid


@schemapin_app.command()
def fetch(
    domain: Annotated[str, option("Domain that serves the document: example.com, or example.com:8443.")],
    server_id: Annotated[str, option("Your name for the server whose tools the key signs.")],
    observer_id: ObserverId = None,
    ca_file: Path | None = option("PEM file of accepted CAs. Default: the system's."),
    revocation_domain: str | None = option("Host of the revocation document. Default: the domain."),
    timeout_s: float = option("Time limit for all of it, seconds.", default=10.0, min=0.1, max=300.0),
    output: Path | None = option("Append to this NDJSON file, not to Kafka; `-`: stdout."),
    bootstrap_servers: Bootstrap = None,
) -> None:
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
    target = sys.stdout.buffer if output == Path("-") else output
    deliver([event], target, bootstrap_servers)
    if fetched.error_code is not None:
        say(f"{fetched.error_code}: {fetched.url}: {fetched.detail}; the failure is published")
        raise typer.Exit(1)
    say(f"published the document of {fetched.url}")


def _verify(
    digest: Digest | None, signature: str, raw: bytes, pinned: str | None, operator_revoked: frozenset[str]
) -> Verification:
    try:
        document = parse_well_known(raw)
    except InputError as error:
        say(str(error))
        return Verification(valid=False, error_code=SchemaPinErrorCode.DISCOVERY_INVALID)
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
    with named_in_errors(path):
        content = decode_json(raw)
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        raise InputError("not_a_tool", f"{path}: give one Tool object, with its name", path="$")
    return content
