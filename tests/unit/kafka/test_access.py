"""Who may do what: the table, and the commands made of it. That brokers see it so is tests/integration's."""

from __future__ import annotations

import json

import pytest

from assay_stream.cli.operating import WorkerRole
from assay_stream.config import Settings
from assay_stream.kafka.topics import (
    ACCESS,
    STAGES,
    AccessRole,
    Operation,
    Resource,
    acl_commands,
    grants_of,
    topic_names,
)
from assay_stream.model.record import TOPIC_NAMES, Role
from tests.support.command import run_command_text

WRITTEN_BY_WORKERS_ALONE = set(Role).difference(
    (Role.SNAPSHOTS, Role.CALLS, Role.CONTROL, Role.CHECKPOINTS, Role.DEAD_LETTERS, Role.INGESTED, Role.FORMATS)
)


def test_nobody_but_workers_writes_what_workers_write() -> None:
    """Evidence, bindings, findings and the rest have one kind of writer."""
    for actor, access in ACCESS.items():
        if actor not in (*STAGES, AccessRole.AGENTS):
            assert not access.writes & WRITTEN_BY_WORKERS_ALONE, actor


def test_who_writes_control_and_observations() -> None:
    """Decisions are the operators', by command or console; observations the proxies', and those that ingest takes."""
    deciding = {actor for actor, access in ACCESS.items() if Role.CONTROL in access.writes}
    assert deciding == {AccessRole.OPERATOR, AccessRole.CONSOLE}
    assert {actor for actor, access in ACCESS.items() if Role.CALLS in access.writes} == {
        AccessRole.PROXY,
        AccessRole.INGEST,
    }


def test_an_analyst_writes_nothing() -> None:
    for grant in grants_of(AccessRole.ANALYST, Settings()):
        # Of groups it sees what was committed, and joins none.
        assert grant.resource is Resource.TOPIC or grant.operations == (Operation.DESCRIBE,)
        assert not {Operation.WRITE, Operation.CREATE} & set(grant.operations)


def test_grants_carry_the_prefixes_of_the_deployment() -> None:
    """Two deployments on one cluster have nothing in common."""
    here = Settings(topic_prefix="a.", group_prefix="a")
    there = Settings(topic_prefix="b.", group_prefix="b")
    for actor in AccessRole:
        names = {grant.name for grant in grants_of(actor, here)}
        assert names.isdisjoint(grant.name for grant in grants_of(actor, there))
        assert all(name.startswith(("a.", "a-")) for name in names)


def test_the_commands_of_a_proxy() -> None:
    names = topic_names(Settings())
    assert acl_commands("User:edge 1", grants_of(AccessRole.PROXY, Settings())) == [
        "kafka-acls.sh --add --allow-principal 'User:edge 1' --operation Write --operation Describe "
        f"--topic {names[Role.SNAPSHOTS]} --topic {names[Role.CALLS]}",
        "kafka-acls.sh --add --allow-principal 'User:edge 1' --operation Read --operation Describe "
        f"--topic {names[Role.VERDICTS]}",
    ]


def test_prefixes_have_commands_of_their_own() -> None:
    """A literal group and a prefix of transactional ids cannot stand in one command."""
    commands = acl_commands("User:s", grants_of(AccessRole.SEALER, Settings()))
    assert "--group assay-stream-seal" in " ".join(commands)
    [prefixed] = [command for command in commands if "prefixed" in command]
    assert "--transactional-id assay-stream-seal- --resource-pattern-type prefixed" in prefixed


def test_agents_write_findings_and_to_topics_of_agents() -> None:
    """Of any name, which is not known here; nothing that operators or proxies publish, and no evidence."""
    written = {
        grant.name: grant for grant in grants_of(AccessRole.AGENTS, Settings()) if Operation.WRITE in grant.operations
    }
    of_agents = {"assay.agent.input.", "assay.agent.state.", "assay-stream-agents-"}
    assert set(written) == {TOPIC_NAMES[Role.FINDINGS], TOPIC_NAMES[Role.REJECTED], *of_agents}
    assert {name for name, grant in written.items() if grant.is_prefix} == of_agents


def test_the_command_line_prints_them() -> None:
    """For people and programs, for one role or all, for a principal of one's own."""
    done = run_command_text("topics", "acls", "--role", "proxy", "--principal", "proxy=User:edge")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "# proxy: a proxy, `tap` or `publish`"
    assert done.stdout.count("User:edge") == 2
    rows = [json.loads(line) for line in run_command_text("topics", "acls", "--json").stdout.splitlines()]
    assert {row["role"] for row in rows} == set(AccessRole)
    assert {row["principal"] for row in rows if row["role"] == "join"} == {"User:assay-join"}


@pytest.mark.parametrize("text", ["proxy", "proxy=edge", "nobody=User:x", "proxy=User:x\ny"])
def test_a_principal_must_be_one(text: str) -> None:
    done = run_command_text("topics", "acls", "--principal", text)
    assert done.returncode == 2
    assert "ROLE=User:NAME" in done.stderr


def test_every_stage_is_a_role_of_the_worker() -> None:
    """A stage that the command line did not offer would never run."""
    assert {role.value for role in WorkerRole} == {stage.value for stage in STAGES}


def test_a_console_can_do_nothing_but_decide() -> None:
    """It reads the store, and has a user only where operators decide in it: that user cannot even read a topic."""
    grants = grants_of(AccessRole.CONSOLE, Settings())
    assert [(grant.resource, grant.name) for grant in grants] == [(Resource.TOPIC, TOPIC_NAMES[Role.CONTROL])]
    assert set(grants[0].operations) == {Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}
