"""``assay-stream seal`` and ``seal keygen``: sign what the evidence topic holds."""

from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream.cli.files import write_key_files
from assay_stream.cli.options import Bootstrap
from assay_stream.config import Settings, load_settings
from assay_stream.errors import ConfigurationError, needing_extra
from assay_stream.files.seal_keys import read_private_key, read_public_keys
from assay_stream.model.checkpoint import RANGE_RECORDS_MAX
from assay_stream.schemes import ed25519
from assay_stream.schemes.tlog import is_key_name

DEFAULT_LOG_NAME = "assay-stream"

seal_app = typer.Typer()

PrivateKeyOption = Annotated[
    Path | None, typer.Option("--key", help="PEM file with the private key (password: ASSAY_STREAM_SEAL_KEY_PASSWORD).")
]
AlsoTrust = Annotated[
    list[Path] | None,
    typer.Option(
        "--also-trust",
        metavar="PUB.pem",
        help="Also continue after checkpoints by this key: the previous one. Repeatable.",
    ),
]


@seal_app.callback(invoke_without_command=True)
def seal(
    context: typer.Context,
    key: PrivateKeyOption = None,
    also_trust: AlsoTrust = None,
    once: Annotated[bool, typer.Option("--once", help="Seal what is there now, then exit.")] = False,
    every_records: Annotated[
        int, typer.Option(min=1, max=RANGE_RECORDS_MAX, help="Maximum records per checkpoint.")
    ] = 4_096,
    every_s: Annotated[float, typer.Option(min=0.1, max=86_400, help="Maximum delay of a checkpoint, seconds.")] = 60.0,
    log_name: Annotated[
        str,
        typer.Option(
            help="Name of your own, such as example.com/production, that starts the origin of each partition's log "
            "in signed notes. Never change it: a log under another name is another log."
        ),
    ] = DEFAULT_LOG_NAME,
    web_port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Serve /healthz, /readyz and /metrics on this port.")
    ] = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Seal evidence, and check it later.

    Without a subcommand this is the sealer: it follows the evidence topic and writes a signed checkpoint over each
    range, until SIGTERM or SIGINT. Run one per deployment: a second one fences the first.
    """
    if context.invoked_subcommand is not None:
        if key is not None or also_trust:
            raise ConfigurationError("bad_option", "give --key and --also-trust after the subcommand, not before it")
        return
    if key is None:
        raise ConfigurationError("bad_option", "--key is required: assay-stream seal keygen --out seal.pem creates one")
    if not is_key_name(log_name):
        raise ConfigurationError("bad_option", "--log-name must not be empty, nor contain white space or a plus")
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    private = read_private_key(key, _password(settings))
    trusted = read_public_keys(also_trust or ()) | ed25519.keys_of([private.public_key()])
    with needing_extra("worker"):
        from assay_stream.worker.sealing import SealPlan, run_sealer
    plan = SealPlan(
        key=private, trusted=trusted, every_records=every_records, every_s=every_s, log_name=log_name, once=once
    )
    run_sealer(settings, plan, web_port=web_port)


@seal_app.command()
def keygen(
    out: Annotated[Path, typer.Option(help="New file for the private key. The public key goes to *.pub.pem.")],
) -> None:
    """Generate an ed25519 key pair, and print the id of the key.

    The private key is encrypted if ASSAY_STREAM_SEAL_KEY_PASSWORD is set. Only its owner can read the file.
    """
    password = _password(load_settings())
    key = Ed25519PrivateKey.generate()
    write_key_files(
        (out, ed25519.private_pem(key, password.encode() if password else None)),
        (out.with_suffix(".pub.pem"), ed25519.public_pem(key.public_key())),
    )
    typer.echo(ed25519.key_id(key.public_key()))


def _password(settings: Settings) -> str | None:
    given = settings.seal_key_password
    return None if given is None else given.get_secret_value()
