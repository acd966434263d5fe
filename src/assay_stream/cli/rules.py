"""``assay-stream policy`` and ``assay-stream keys``: what a mismatch leads to, and whose signatures count."""

from typing import Annotated, Literal

import typer

from assay_stream.cli.deciding import DecidingOnServer, print_state
from assay_stream.cli.options import AnyServerId, AsJson, ServerId, grouped
from assay_stream.cli.shared import say
from assay_stream.cli.store_sources import HistoryOptions, known_bindings, named
from assay_stream.model.control import KEY_ACCEPT_TYPE, KEY_REVOKE_TYPE, POLICY_REMOVE_TYPE, POLICY_SET_TYPE
from assay_stream.report.pins import key_rows, policy_rows

policy_app = typer.Typer(help="Set what happens where a definition differs from its pins.", no_args_is_help=True)
keys_app = typer.Typer(help="Choose whose signatures count (SchemaPin).", no_args_is_help=True)

Enforcement = Literal["audit", "warn", "block"]
Unknown = Annotated[
    Literal["allow_degraded", "allow_unverified", "warn", "block"],
    typer.Option(help="What to do where a tool has no pin, or no definition was observed."),
]
PolicyTool = Annotated[str | None, typer.Option("--tool", help="For this tool only.")]
KeyFingerprint = Annotated[str, typer.Option(help="The key's: sha256: and 64 hexadecimal digits.")]


@policy_app.command("set")
@grouped
def set_policy(
    server_id: ServerId,
    by: DecidingOnServer,
    enforcement: Annotated[Enforcement, typer.Option(help="What to do on a mismatch.")],
    unknown: Unknown = "allow_degraded",
    tool: PolicyTool = None,
) -> None:
    """Set the digest policy of a server, or of one of its tools. `policy plan` shows first what it would refuse.

    The stream itself blocks nothing: evidence says what the policy would have done, and proxies that follow the
    verdict topic (`assay-stream tap --enforce`) do it.
    """
    data = {"server_id": server_id, "tool_name": tool, "enforcement": enforcement, "unknown": unknown}
    by.decide((POLICY_SET_TYPE, data))
    say(f"policy set for {tool or 'every tool'} on {server_id}: {enforcement}, unknown {unknown}")


@policy_app.command()
@grouped
def remove(server_id: ServerId, by: DecidingOnServer, tool: PolicyTool = None) -> None:
    """Take a policy back: that of a server, or with --tool that of one tool, which then falls under its server's.

    Pins and rejections stay. `policy plan --remove` shows beforehand what changes.
    """
    by.decide((POLICY_REMOVE_TYPE, {"server_id": server_id, "tool_name": tool}))
    say(f"policy removed for {tool or 'every tool'} on {server_id}" + ("" if tool else "; policies of tools stand"))


@policy_app.command("list")
@grouped
def list_policies(looking: HistoryOptions, server_id: AnyServerId = None, as_json: AsJson = False) -> None:
    """Show the policies in force."""
    bindings = known_bindings(looking, *named(server_id))
    columns = ("server_id", "tool_name", "enforcement", "unknown", "author", "since", "reason")
    print_state(policy_rows(bindings, server_id=server_id), columns, as_json=as_json)


@keys_app.command()
@grouped
def accept(
    server_id: ServerId,
    domain: Annotated[str, typer.Option(help="The domain whose key it is.")],
    fingerprint: KeyFingerprint,
    by: DecidingOnServer,
    tool: Annotated[str | None, typer.Option("--tool", help="For this tool only.")] = None,
) -> None:
    """Accept a key for a domain: the only way by which another key replaces the first one used."""
    data = {"server_id": server_id, "domain": domain, "fingerprint": fingerprint, "tool_name": tool}
    by.decide((KEY_ACCEPT_TYPE, data))
    say(f"accepted for {tool or 'every tool'} on {server_id}: {fingerprint}")


@keys_app.command()
@grouped
def revoke(server_id: ServerId, fingerprint: KeyFingerprint, by: DecidingOnServer) -> None:
    """Revoke a key for a server, whatever its domain says."""
    data = {"server_id": server_id, "fingerprint": fingerprint}
    by.decide((KEY_REVOKE_TYPE, data))
    say(f"revoked on {server_id}: {fingerprint}")


@keys_app.command("list")
@grouped
def list_keys(looking: HistoryOptions, server_id: AnyServerId = None, as_json: AsJson = False) -> None:
    """Show the keys that were observed, the ones that tools are pinned to, and what operators decided on them."""
    bindings = known_bindings(looking, *named(server_id))
    columns = ("server_id", "domain", "tool_name", "what", "fingerprint", "since", "author")
    print_state(key_rows(bindings, server_id=server_id), columns, as_json=as_json)
