"""``assay-stream agents``: try users' agents without a broker, and over history."""

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_stream.agents import AgentSet, Runner
from assay_stream.agents.alerting import AgentAlerts
from assay_stream.agents.labels import NO_LABELS, Labels, read_labels
from assay_stream.agents.loading import load_agents
from assay_stream.agents.scenario import ScenarioResult, read_scenario, run_scenario
from assay_stream.alerts.rules import AlertRules
from assay_stream.cli.files import read_input
from assay_stream.cli.options import AsJson, Bootstrap, FromKafka, Inputs, SnapshotPartitions
from assay_stream.cli.output import print_json
from assay_stream.cli.shared import collecting_seldom, say
from assay_stream.cli.sources import make_source
from assay_stream.config import command_settings
from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.limits.metrics import AGENT_REPLAY_BUFFERED_BYTES_MAX, AGENT_REPLAY_BUFFERED_MAX
from assay_stream.model.record import Output, Role
from assay_stream.replay.run import Replay
from assay_stream.replay.selection import Selection
from assay_stream.schemes.yaml_text import decode_json_or_yaml
from assay_stream.text.escaping import json_text, visible
from assay_stream.text.toml import decode_toml

agents_app = typer.Typer(help="List, test and replay your own detections.", no_args_is_help=True)

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


@agents_app.command("test")
def run_tests(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Scenario: TOML, YAML or JSON.")],
    labels: LabelsFile = None,
    as_json: AsJson = False,
) -> None:
    """Run agents over the records of a scenario, without a broker, and compare what they find.

    The module is looked for beside the file, too. Each test is run in two orders of arrival, which must not matter.
    Exit code 1 if a test fails.
    """
    sys.path.insert(0, str(file.resolve().parent))
    scenario = read_scenario(_decoded(file, "bad_scenario"))
    failed = 0
    for result in run_scenario(scenario, load_agents(scenario.agents, labels=labels_in(labels))):
        failed += bool(result.complaints)
        _tell(result, as_json=as_json)
    if failed:
        say(f"{failed} of {len(scenario.tests)} tests failed")
        raise typer.Exit(1)


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
    """Yield what agents find in a replay; given rules of alerts, the alerts of that."""
    roomy = replace(
        DEFAULT_LIMITS,
        agent_buffered_max=AGENT_REPLAY_BUFFERED_MAX,
        agent_buffered_bytes_max=AGENT_REPLAY_BUFFERED_BYTES_MAX,
    )
    runner = Runner(declared, limits=roomy)
    stage = None if rules is None else AgentAlerts(rules)
    for outputs in made.steps():
        found = [*runner.take(outputs), *runner.advance(made.time_us)]
        if stage is None:
            yield from found
        else:
            yield from stage.advance(made.time_us)
            yield from stage.take([*outputs, *found])
    if stage is None:
        yield from runner.end()
    else:
        yield from stage.take(runner.end())
        yield from stage.advance(made.time_us, step_us=0)


def labels_in(file: Path | None) -> Labels:
    """Return the labels in a file, none without one.

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


def _decoded(file: Path, code: str) -> Any:
    raw = read_input(file)
    if file.suffix != ".toml":
        return decode_json_or_yaml(raw, limits=DEFAULT_LIMITS)
    try:
        return tomllib.loads(raw.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(code, f"the file is not TOML: {error}") from None


def _tell(result: ScenarioResult, *, as_json: bool) -> None:
    if as_json:
        told = {"test": result.name, "passed": not result.complaints, "complaints": result.complaints}
        print_json(told | {"found": result.found})
        return
    typer.echo(f"{'FAILED' if result.complaints else 'passed'}  {visible(result.name)}")
    for complaint in result.complaints:
        typer.echo(f"        {visible(complaint)}")
    if result.complaints:
        for found in result.found:
            print_json({"found": found})
