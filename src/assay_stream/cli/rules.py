"""``assay-stream policy`` and ``assay-stream keys``: what is to happen, and whose signatures count."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from assay_stream.cli.deciding import (
    AnyServerId,
    AsJson,
    Author,
    EventFile,
    Reason,
    ServerId,
    decide,
    known_bindings,
    print_rows,
)
from assay_stream.cli.shared import Bootstrap, say
from assay_stream.model.control import KEY_ACCEPT_TYPE, KEY_REVOKE_TYPE, POLICY_SET_TYPE
from assay_stream.report.pins import key_rows, policy_rows

policy_app = typer.Typer(help="What is to happen where a definition differs from its pins.", no_args_is_help=True)
keys_app = typer.Typer(help="Whose signatures count (SchemaPin).", no_args_is_help=True)

Fingerprint = Annotated[str, typer.Option(help="The key's: sha256: and 64 hexadecimal digits.")]


@policy_app.command("set")
def set_policy(
    server_id: ServerId,
    reason: Reason,
    enforcement: Annotated[
        Literal["audit", "warn", "block"], typer.Option(help="Where a definition differs from its pin.")
    ],
    unknown: Annotated[
        Literal["allow_degraded", "allow_unverified", "warn", "block"],
        typer.Option(help="Where a tool has no pin, or no definition was observed."),
    ] = "allow_degraded",
    tool: Annotated[str | None, typer.Option("--tool", help="For this tool only.")] = None,
    author: Author = None,
    output: EventFile = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Set the digest policy of a server, or of one of its tools.

    The stream itself blocks nothing: evidence says what the policy would have done, and proxies that follow the
    verdict topic (`assay-stream tap --enforce`) do it.
    """
    data = {"server_id": server_id, "tool_name": tool, "enforcement": enforcement, "unknown": unknown}
    decide([(POLICY_SET_TYPE, data)], author=author, reason=reason, output=output, bootstrap=bootstrap_servers)
    say(f"policy set for {tool or 'every tool'} on {server_id}: {enforcement}, unknown {unknown}")


@policy_app.command("list")
def list_policies(server_id: AnyServerId = None, as_json: AsJson = False, bootstrap_servers: Bootstrap = None) -> None:
    """Show the policies in force."""
    _, bindings = known_bindings(bootstrap_servers)
    columns = ("server_id", "tool_name", "enforcement", "unknown", "author", "since", "reason")
    print_rows(policy_rows(bindings, server_id=server_id), columns, as_json=as_json)


@keys_app.command("accept")
def accept(
    server_id: ServerId,
    domain: Annotated[str, typer.Option(help="The domain whose key it is.")],
    fingerprint: Fingerprint,
    reason: Reason,
    tool: Annotated[str | None, typer.Option("--tool", help="For this tool only.")] = None,
    author: Author = None,
    output: EventFile = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Accept a key for a domain: the only way by which another key replaces the first one used."""
    data = {"server_id": server_id, "domain": domain, "fingerprint": fingerprint, "tool_name": tool}
    decide([(KEY_ACCEPT_TYPE, data)], author=author, reason=reason, output=output, bootstrap=bootstrap_servers)
    say(f"accepted for {tool or 'every tool'} on {server_id}: {fingerprint}")


@keys_app.command("revoke")
def revoke(
    server_id: ServerId,
    fingerprint: Fingerprint,
    reason: Reason,
    author: Author = None,
    output: EventFile = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Revoke a key for a server, whatever its domain says."""
    data = {"server_id": server_id, "fingerprint": fingerprint}
    decide([(KEY_REVOKE_TYPE, data)], author=author, reason=reason, output=output, bootstrap=bootstrap_servers)
    say(f"revoked on {server_id}: {fingerprint}")


@keys_app.command("list")
def list_keys(server_id: AnyServerId = None, as_json: AsJson = False, bootstrap_servers: Bootstrap = None) -> None:
    """Show the keys that were observed, the ones that tools are pinned to, and what operators decided on them."""
    _, bindings = known_bindings(bootstrap_servers)
    columns = ("server_id", "domain", "tool_name", "what", "fingerprint", "since", "author")
    print_rows(key_rows(bindings, server_id=server_id), columns, as_json=as_json)
