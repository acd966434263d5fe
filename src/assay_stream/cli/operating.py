"""``assay-stream worker``, ``topics`` and ``agents``: what an operator runs."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from assay_stream import __version__
from assay_stream.agents import AgentSet, Runner
from assay_stream.agents.declaration import NO_LABELS, Labels, load_agents, read_labels
from assay_stream.agents.processing import AgentAlerts
from assay_stream.alerts.rules import AlertRules
from assay_stream.cli.archiving import topics_restore, topics_restore_mirror
from assay_stream.cli.options import AsJson, Bootstrap, FromKafka, Inputs, SnapshotPartitions
from assay_stream.cli.output import print_json, print_line
from assay_stream.cli.shared import Refusals, argument, as_admin, flag, name_refused, on_kafka, option
from assay_stream.cli.sources import make_source, noted
from assay_stream.config import command_settings, load_settings
from assay_stream.errors import ConfigurationError, needing_extra
from assay_stream.files.local import read_toml
from assay_stream.kafka.ranges import list_members, show_level, write_finalised
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.topics import (
    ACCESS,
    AccessRole,
    TopicState,
    acl_commands,
    apply_topics,
    grants_of,
    inspect_topics,
)
from assay_stream.model.fields import AGENT_NAME
from assay_stream.model.record import TOPICS, Output, Role
from assay_stream.model.state_table import LEVEL
from assay_stream.replay.order import Selection
from assay_stream.replay.run import Replay
from assay_stream.text.escaping import json_text, shown

agents_app = typer.Typer(help="List and replay your own detections.", no_args_is_help=True)

LabelsFile = Annotated[Path | None, option("Capabilities of tools, by patterns of SERVER/TOOL (TOML).", "--labels")]
Module = Annotated[str, argument("Python module that declares agents at its top level.", metavar="MODULE")]


@agents_app.command("list")
def list_(module: Module, labels: LabelsFile = None) -> None:
    """Print the agents of a module, one JSON object each, with the digest that their findings carry."""
    declared = load_agents(module, labels=labels_in(labels))
    for agent in declared.agents.values():
        reads = [role.value for role in agent.inputs] + ([Role.DEFINITIONS.value] if agent.label else [])
        stated = {"name": agent.name, "title": agent.title, "severity": agent.severity}
        print_json({**stated, "reads": reads, "digest": declared.digest})


@agents_app.command("replay")
def replay(
    module: Module,
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
    snapshot_partitions: SnapshotPartitions = None,
    bootstrap_servers: Bootstrap = None,
    alerts: bool = flag("Print the alerts that the findings raise, not the findings."),
    labels: LabelsFile = None,
) -> None:
    """Replay recorded observations through the engine and the agents, and print what the agents find.

    Prints findings as the finding topic carries them, one per line. The same input and the same agents give the same
    bytes, live or replayed. Exit code 3: a line could not be read.
    """
    declared = load_agents(module, labels=labels_in(labels))
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    source = make_source(inputs, from_kafka, Selection(), settings, snapshot_partitions=snapshot_partitions)
    refused = Refusals()
    with source.spool() as spool:
        for output in _found(declared, source.replay(spool), settings.alert_rules() if alerts else None, refused):
            value = output.value or b""
            # A file gets the very bytes; a terminal nothing that could steer it.
            typer.echo(json_text(value.decode()).encode() if sys.stdout.isatty() else value)
    name_refused(refused)


def _found(declared: AgentSet, made: Replay, rules: AlertRules | None, refused: Refusals) -> Iterator[Output]:
    """Yield the agents' findings in a replay, or, given alert rules, the alerts they raise."""
    runner = Runner(declared)
    stage = None if rules is None else AgentAlerts(rules)
    for written in made.steps():
        outputs = list(noted(written, refused))
        found = runner.take(outputs)
        if stage is None:
            yield from found
        else:
            yield from stage.advance(made.time_us)
            yield from stage.take([*outputs, *found])
    if stage is not None:
        yield from stage.advance(made.time_us, step_us=0)


def labels_in(file: Path | None) -> Labels:
    if file is None:
        return NO_LABELS
    return read_labels(read_toml(file, "bad_labels"))


topics_app = typer.Typer(help="Create, inspect and restore the topics of a deployment.", no_args_is_help=True)


Agents = Annotated[str | None, option("Agents of a Python module, or one of them.", metavar="MODULE[:AGENT]")]


class WorkerRole(StrEnum):
    REGISTRY = "registry"
    JOIN = "join"
    ALERTS = "alerts"


def worker(
    role: list[WorkerRole] | None = option("Run this stage only. Repeatable."),
    bootstrap_servers: Bootstrap = None,
    agents: Agents = None,
    labels: LabelsFile = None,
    web_port: int | None = option("Port of /healthz, /readyz and /metrics."),
) -> None:
    """Run the registry, the join and the alert stage; or, with --agents, your own detections.

    Settings come from ASSAY_STREAM_* variables. On SIGTERM or SIGINT the worker finishes its batch and stops.
    """
    settings = load_settings(bootstrap_servers=bootstrap_servers, web_port=web_port)
    with needing_extra("worker"):
        from assay_stream.worker.detections import run_agents
        from assay_stream.worker.worker import run_worker
    if agents is None and labels is not None:
        raise ConfigurationError("bad_option", "--labels is for agents: give --agents too")
    if agents is None:
        run_worker(settings, frozenset(chosen.value for chosen in role or list(WorkerRole)))
    elif role:
        raise ConfigurationError("bad_option", "--agents runs in a process of its own: give --role to another worker")
    else:
        run_agents(settings, load_agents(agents, labels=labels_in(labels)), _name_of(agents))


@topics_app.command("apply")
def topics_apply(bootstrap_servers: Bootstrap = None, agents: Agents = None) -> None:
    """Create missing topics, with --agents theirs too. An existing topic is never altered; if it differs: an error."""
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    created = asyncio.run(as_admin(settings, partial(apply_topics, agents=_name_of(agents))))
    for name in created:
        typer.echo(f"created {name}")
    if not created:
        typer.echo("nothing to do: every topic exists")


@topics_app.command("show")
def topics_show(bootstrap_servers: Bootstrap = None, agents: Agents = None, as_json: AsJson = False) -> bool:
    """Compare every topic with its specification, and show the format level. Exit code 1 if one is missing or differs.

    Settings of a topic are compared if this user has the right DescribeConfigs on it; else its state is `unread`.
    """
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    states = asyncio.run(as_admin(settings, partial(inspect_topics, agents=_name_of(agents))))
    stated: tuple[int, str] | None = None
    try:
        stated = asyncio.run(show_level(settings))
    except Exception as error:
        known = explained(error)
        if known is None or known.code not in ("topic_missing", "not_authorized"):
            raise
    rows = [_row(state, stated and stated[0]) for state in states]
    for row in rows:
        if as_json:
            print_json(row)
        else:
            at = f"level {row['format_level']} " if row["format_level"] else ""
            line = f"{row['state']:<8} {row['partitions']:>4} {row['name']}  {at}{row['differing'] or ''}"
            print_line(shown(line.rstrip()))
    if stated and not as_json:
        print_line(shown(_stated(*stated)))
    return any(row["state"] in ("missing", "differs") for row in rows)


def _stated(level: int, by: str) -> str:
    since = f", finalised by {by}" if by else ""
    return f"format level {level}{since}; assay-stream {__version__} reads and writes up to {LEVEL}"


def _row(state: TopicState, level: int | None) -> dict[str, object]:
    differs = state.differing or state.partitions != state.spec.partitions
    agrees = "ok" if state.is_checked else "unread"
    return {
        "format_level": level if TOPICS[state.spec.role].is_state else None,
        "name": state.spec.name,
        "state": "missing" if not state.partitions else "differs" if differs else agrees,
        "partitions": state.partitions,
        "partitions_wanted": state.spec.partitions,
        "differing": {name: {"is": actual, "wanted": wanted} for name, (actual, wanted) in state.differing.items()},
    }


@topics_app.command("finalize")
def topics_finalize(
    level: int = option("Format level that workers are to write.", default=LEVEL, min=1),
    yes: bool = flag("Do not ask."),
    ignore_members: bool = flag("Finalise even if some workers cannot read it."),
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Let workers write the new form of their state, after all of them are upgraded.

    Until then you can go back to the previous release; afterwards it refuses to start (format_too_new). Workers write
    the level after their next start. A level is never lowered. Processes without a consumer group are not seen:
    upgrade stores, consoles and commands first.
    """
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    before, by = on_kafka(settings, show_level)
    print_line(shown(_stated(before, by)))
    if level == before:
        typer.echo("nothing to do")
        return
    if not before < level <= LEVEL:
        why = f"a level is never lowered, and this release writes up to {LEVEL}"
        raise ConfigurationError("bad_option", f"--level {level} does not follow {before}: {why}")
    members = asyncio.run(as_admin(settings, list_members))
    for member in members:
        reads = f"reads up to level {member.level}" if member.level else "does not say what it reads"
        print_line(shown(f"{member.group_id}: {member.name} {reads}"))
    behind = sum(member.level < level for member in members)
    if behind and not ignore_members:
        raise ConfigurationError(
            "members_behind",
            f"{behind} of {len(members)} members of consumer groups cannot read level {level}, or do not say so: "
            "replace them first. With --ignore-members they wait from their next start on (format_too_new)",
        )
    if not yes:
        typer.confirm(f"Finalise level {level}? There is no way back to a release that cannot read it", abort=True)
    asyncio.run(write_finalised(settings, level))
    typer.echo(f"finalised level {level}: workers write it after their next start, in any order")


topics_app.command("restore")(topics_restore)
topics_app.command("restore-mirror")(topics_restore_mirror)


@topics_app.command("acls")
def topics_acls(
    role: list[AccessRole] | None = option("This role only. Repeatable."),
    principal: list[str] | None = option("Default: User:assay-<role>. Repeatable.", metavar="ROLE=USER"),
    as_json: AsJson = False,
) -> None:
    """Print the commands that grant each role exactly what it needs. Contacts no broker.

    The commands are Kafka's own kafka-acls.sh; add --bootstrap-server and --command-config as your cluster needs.
    """
    settings = load_settings()
    principals: dict[str, str] = {}
    for text in principal or ():
        named, _, user = text.partition("=")
        if named not in list(AccessRole) or not user.startswith("User:") or not user.isprintable():
            raise ConfigurationError("bad_option", "--principal is ROLE=User:NAME, the role one that --role takes")
        principals[named] = user
    for actor in role or list(AccessRole):
        grants, who = grants_of(actor, settings), principals.get(actor, f"User:assay-{actor}")
        if as_json:
            for grant in grants:
                row = {
                    "role": actor.value,
                    "principal": who,
                    "resource": grant.resource.value,
                    "name": grant.name,
                    "pattern": "prefixed" if grant.is_prefix else "literal",
                    "operations": [operation.value for operation in grant.operations],
                }
                print_json(row)
        else:
            typer.echo(f"# {actor}: {ACCESS[actor].purpose}")
            for command in acl_commands(who, grants):
                typer.echo(command)


def _name_of(agents: str | None) -> str:
    """Return the name that topics and consumer groups of agents derive from; it must not depend on their code."""
    if agents is None:
        return ""
    module, _, agent = agents.partition(":")
    name = agent or module.rpartition(".")[2]
    if not re.fullmatch(AGENT_NAME, name):
        raise ConfigurationError(
            "bad_option",
            "--agents is MODULE or MODULE:AGENT; topics are named after its last part, which must be lower-case "
            "letters, digits and underscores, 64 at most",
        )
    return name
