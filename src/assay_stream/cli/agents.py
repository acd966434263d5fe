"""``assay-stream agents``: list users' agents, and try them over history."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from assay_stream.agents import AgentSet, Runner
from assay_stream.agents.declaration import load_agents
from assay_stream.agents.memory import NO_LABELS, Labels, read_labels
from assay_stream.agents.processing import AgentAlerts
from assay_stream.alerts.rules import AlertRules
from assay_stream.cli.files import read_input
from assay_stream.cli.options import Bootstrap, FromKafka, Inputs, SnapshotPartitions
from assay_stream.cli.output import print_json
from assay_stream.cli.shared import collecting_seldom
from assay_stream.cli.sources import make_source
from assay_stream.config import command_settings
from assay_stream.errors import InputError
from assay_stream.model.record import Output, Role
from assay_stream.replay.run import Replay
from assay_stream.replay.selection import Selection
from assay_stream.text.escaping import json_text
from assay_stream.text.toml import decode_toml

agents_app = typer.Typer(help="List and replay your own detections.", no_args_is_help=True)

LabelsFile = Annotated[
    Path | None, typer.Option("--labels", help="What tools can do, by patterns of SERVER/TOOL (TOML).")
]
Module = Annotated[str, typer.Argument(metavar="MODULE", help="Python module that declares agents at its top level.")]


@agents_app.command("list")
def list_(module: Module, labels: LabelsFile = None) -> None:
    """Print the agents of a module, one JSON object each, with the digest that their findings carry."""
    declared = load_agents(module, labels=labels_in(labels))
    for agent in declared.agents.values():
        reads = [role.value for role in agent.inputs] + ([Role.DEFINITIONS.value] if agent.label else [])
        print_json(
            {
                "name": agent.name,
                "title": agent.title,
                "severity": agent.severity,
                "reads": reads,
                "digest": declared.digest,
            }
        )


@agents_app.command("replay")
def replay(
    module: Module,
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
    snapshot_partitions: SnapshotPartitions = None,
    bootstrap_servers: Bootstrap = None,
    alerts: Annotated[
        bool, typer.Option("--alerts", help="Print the alerts that the findings raise, not the findings.")
    ] = False,
    labels: LabelsFile = None,
) -> None:
    """Replay recorded observations through the engine and the agents, and print what the agents find.

    Prints findings as the finding topic carries them, one per line. The same input and the same agents give the same
    bytes, live or replayed.
    """
    declared = load_agents(module, labels=labels_in(labels))
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    source = make_source(inputs, from_kafka, Selection(), settings, snapshot_partitions=snapshot_partitions)
    with collecting_seldom(), source.spool() as spool:
        found = _found(declared, source.replay(spool), settings.alert_rules() if alerts else None)
        for output in found:
            # A file gets the very bytes; a terminal nothing that could steer it.
            if sys.stdout.isatty():
                typer.echo(json_text((output.value or b"").decode()))
            else:
                sys.stdout.buffer.write((output.value or b"") + b"\n")


def _found(declared: AgentSet, made: Replay, rules: AlertRules | None) -> Iterator[Output]:
    """Yield the agents' findings in a replay, or, given alert rules, the alerts they raise."""
    runner = Runner(declared)
    stage = None if rules is None else AgentAlerts(rules)
    for outputs in made.steps():
        found = runner.take(outputs)
        if stage is None:
            yield from found
        else:
            yield from stage.advance(made.time_us)
            yield from stage.take([*outputs, *found])
    if stage is not None:
        yield from stage.advance(made.time_us, step_us=0)


def labels_in(file: Path | None) -> Labels:
    """Read a labels file; empty without one.

    Raises:
        InputError: ``bad_labels``, or ``bad_pattern``.
    """
    if file is None:
        return NO_LABELS
    raw = read_input(file)
    try:
        return read_labels(decode_toml(raw))
    except InputError as error:
        raise InputError("bad_labels", error.message) if error.code == "not_toml" else error from None
