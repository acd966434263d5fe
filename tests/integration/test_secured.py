"""Every client of the product over SASL_SSL, each with the grants of its role and no others."""

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from assay_stream.console.deciding import KafkaPublish
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.connection import connection_options, open_admin
from assay_stream.kafka.ranges import READ, Member, list_members, write_finalised
from assay_stream.kafka.topics import ACCESS, AccessRole, topic_names
from assay_stream.model.record import Record, Role
from assay_stream.model.state_table import LEVEL
from deploy.local.secured import SecuredBroker
from tests.support.command import run_command_text
from tests.support.deployment import Worker
from tests.support.fleet import START, a_call_by, a_listing, server_name
from tests.support.secured import ALL_STAGES, SecuredDeployment, password_of
from tests.support.toml import toml_of
from tests.unit.cli.test_restoring import an_archive
from tests.unit.console.test_publishing import ACKNOWLEDGE

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.xdist_group("secured"),
    # A command's event loop ends before the brokers have answered the end of its TLS connections.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        tools = [{"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}]
        answers = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "s", "version": "1"}},
            "tools/list": {"tools": tools},
            "tools/call": {"content": [{"type": "text", "text": "hello"}]},
        }
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answers[asked["method"]]}), flush=True)
"""
"""An MCP server with one tool."""


def said(number: int, method: str, **params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"


@pytest.fixture(scope="module")
def deployment(secured: SecuredBroker) -> Iterator[SecuredDeployment]:
    """Topics, applied by the admin over the secured listener, and every role with its grants; no worker."""
    with SecuredDeployment(secured.bootstrap, "secured", broker=secured) as made:
        asyncio.run(made.grant())
        assert cli(made, AccessRole.ADMIN, "topics", "apply").returncode == 0
        yield made


@pytest.fixture(scope="module")
def worker(deployment: SecuredDeployment) -> Worker:
    started = deployment.start_worker(**deployment.env_of(ALL_STAGES))
    asyncio.run(started.wait_ready())
    return started


def cli(
    deployment: SecuredDeployment, user: str, *arguments: str, stdin: bytes = b"", **more: str
) -> subprocess.CompletedProcess[str]:
    return run_command_text(*arguments, stdin=stdin, **(deployment.env | deployment.env_of(user) | more))


def cli_with(deployment: SecuredDeployment, user: str, env: dict[str, str], *arguments: str) -> str:
    """A command that is refused, and what it says; it exits with 2 and shows no stack trace."""
    started = time.monotonic()
    done = run_command_text(*arguments, stdin=b"", **(deployment.env | deployment.env_of(user) | env))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert password_of(user) not in done.stderr
    assert time.monotonic() - started < 60
    return done.stderr


def read(deployment: SecuredDeployment, role: Role, count: int) -> list[Record]:
    return asyncio.run(deployment.wait_for(role, lambda records: len(records) >= count))


@pytest.fixture(scope="module")
def evidence(deployment: SecuredDeployment, worker: Worker) -> Record:
    """A list, a call and a list that differs, published by a proxy: the first evidence, once there is an alert, too."""
    later = START + timedelta(minutes=5)
    lines = [
        a_listing(0, 0, 0, 1, START),
        a_call_by(0, 0, 0, START + timedelta(minutes=1), "snapshot-1"),
        a_listing(0, 0, 1, 2, later),
    ]
    stdin = b"".join(value + b"\n" for _, _, value in lines)
    done = cli(deployment, AccessRole.PROXY, "publish", "--from", "observations", "-", stdin=stdin)
    assert done.returncode == 0, done.stderr
    joined = b'"tool_call_id":"call-0"'
    found = asyncio.run(
        deployment.wait_for(Role.EVIDENCE, lambda records: any(joined in (one.value or b"") for one in records))
    )
    assert read(deployment, Role.ALERTS, 1)
    return next(one for one in found if joined in (one.value or b""))


# --- the work, over the secured listener --------------------------------------------------------------------


def test_what_a_proxy_publishes_becomes_evidence_and_alerts(evidence: Record, worker: Worker) -> None:
    """Publisher, registry, join and the alert stage do the main job over SASL_SSL."""
    assert json.loads(evidence.value or b"")["data"]["tool_definition_digest"].startswith("sha256:")
    assert worker.process.poll() is None


def test_agents_run_with_the_grants_of_their_role(deployment: SecuredDeployment, worker: Worker) -> None:
    """They read what stages write and how far these are, and write findings and to topics of their own."""
    shipped = "assay_stream.agents.shipped"
    assert worker.process.poll() is None
    assert cli(deployment, AccessRole.ADMIN, "topics", "apply", "--agents", shipped).returncode == 0
    calls = [(b"any", a_denied_call(number)) for number in range(5)]
    asyncio.run(deployment.send(Role.CALLS, calls))
    agents = deployment.start_worker("--agents", shipped, **deployment.env_of(AccessRole.AGENTS))
    try:
        asyncio.run(
            deployment.wait_for(
                Role.FINDINGS, lambda records: any(b'"agent":"denied_burst"' in (each.value or b"") for each in records)
            )
        )
        assert agents.terminate() == 0
    finally:
        agents.process.kill()


def a_denied_call(number: int) -> bytes:
    _, _, value = a_call_by(0, 0, 900 + 9 * number, START + timedelta(minutes=30, seconds=number), None)
    call = json.loads(value)
    call["data"]["decision"] = "deny"
    return json.dumps(call).encode()


def test_a_tap_that_enforces_publishes_and_follows_the_verdicts(deployment: SecuredDeployment, worker: Worker) -> None:
    """The tap and the verdict client come as the proxy."""
    lines = [
        said(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "c", "version": "1"}),
        said(2, "tools/list"),
        said(3, "tools/call", name="echo", arguments={}),
    ]
    tap = ["tap", "--enforce", "--server-id", "tapped", "--", sys.executable, "-c", SERVER]
    done = deployment.as_user(AccessRole.PROXY).run(*tap, stdin="".join(lines))
    assert done.returncode == 0, done.stderr
    assert "verdicts_unavailable" not in done.stdout
    assert "hello" in done.stdout
    asyncio.run(
        deployment.wait_for(Role.EVIDENCE, lambda records: any(b"tapped" in (one.value or b"") for one in records))
    )


def test_a_lister_publishes_with_the_grants_of_its_role(
    deployment: SecuredDeployment, worker: Worker, tmp_path: Path
) -> None:
    """It may write lists, and nothing else."""
    config = tmp_path / "servers.toml"
    config.write_text(toml_of({"servers": [{"server_id": "listed", "command": [sys.executable, "-c", SERVER]}]}))
    lister = deployment.start("list-watch", "--config", str(config), **deployment.env_of(AccessRole.LISTER))
    asyncio.run(
        deployment.wait_for(Role.SNAPSHOTS, lambda lists: any(b"-lister" in (one.value or b"") for one in lists))
    )
    assert lister.terminate() == 0


@pytest.mark.usefixtures("evidence")
def test_an_operator_decides_and_an_analyst_looks(deployment: SecuredDeployment) -> None:
    """Decisions are written by the operator; whoever only reads can read all, and decide nothing."""
    rule = ["policy", "set", "--server-id", server_name(0), "--enforcement", "warn", "--reason", "test"]
    assert cli(deployment, AccessRole.OPERATOR, *rule, "--author", "o").returncode == 0
    for command in (
        ["pins", "list"],
        ["alerts", "list"],
        ["timeline", "--server-id", server_name(0)],
        ["verify", "--from-kafka"],
        ["topics", "show"],
    ):
        done = cli(deployment, AccessRole.ANALYST, *command)
        assert done.returncode in (0, 1), (command, done.stderr)
        assert "not_authorized" not in done.stderr
    assert cli(deployment, AccessRole.ANALYST, "alerts", "list").stdout


@pytest.mark.usefixtures("evidence")
def test_a_sealer_seals_and_a_forwarder_forwards(deployment: SecuredDeployment, tmp_path: Path) -> None:
    """Both with the grants of their role alone."""
    key = tmp_path / "seal.pem"
    assert cli(deployment, AccessRole.SEALER, "seal", "keygen", "--out", str(key)).returncode == 0
    seal = deployment.as_user(AccessRole.SEALER).run("seal", "--key", key, "--once")
    assert seal.returncode == 0, seal.stderr
    assert read(deployment, Role.CHECKPOINTS, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(40)
        to = f"syslog:127.0.0.1:{receiver.getsockname()[1]},udp"
        forwarder = deployment.start("alerts", "forward", "--to", to, **deployment.env_of(AccessRole.FORWARDER))
        assert receiver.recv(65_536)
        assert forwarder.terminate() == 0


# --- refused ------------------------------------------------------------------------------------------------


def test_every_way_to_be_refused_is_named(deployment: SecuredDeployment, secured: SecuredBroker) -> None:
    """Each with its own code and the variable or the file to mend."""
    port = secured.secured.rpartition(":")[2]
    for env, code, mend in (
        ({"SASL_PASSWORD": "wrong"}, "sasl_refused", "ASSAY_STREAM_SASL_PASSWORD"),
        ({"SASL_USERNAME": "nobody"}, "sasl_refused", "ASSAY_STREAM_SASL_USERNAME"),
        ({"SASL_MECHANISM": "SCRAM-SHA-256"}, "sasl_mechanism_refused", "ASSAY_STREAM_SASL_MECHANISM"),
        ({"SSL_CAFILE": str(secured.foreign_cafile)}, "broker_not_trusted", "ASSAY_STREAM_SSL_CAFILE"),
        ({"BOOTSTRAP_SERVERS": secured.expired}, "broker_certificate_expired", "renew"),
        ({"BOOTSTRAP_SERVERS": f"localhost:{port}"}, "broker_name_differs", "ASSAY_STREAM_BOOTSTRAP_SERVERS"),
        (
            {"BOOTSTRAP_SERVERS": secured.bootstrap, "SECURITY_PROTOCOL": "SASL_PLAINTEXT"},
            "sasl_not_expected",
            "ASSAY_STREAM_SECURITY_PROTOCOL",
        ),
    ):
        wrong = {f"ASSAY_STREAM_{name}": value for name, value in env.items()}
        told = cli_with(deployment, AccessRole.ANALYST, wrong, "topics", "show")
        assert told.startswith(f"assay-stream: {code}: "), told
        assert mend in told


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ({"ASSAY_STREAM_SASL_PASSWORD": "wrong"}, "sasl_refused"),
        ({"ASSAY_STREAM_SSL_CAFILE": "foreign"}, "broker_not_trusted"),
        ({"ASSAY_STREAM_BOOTSTRAP_SERVERS": "expired"}, "broker_certificate_expired"),
    ],
)
def test_a_worker_and_a_publisher_end_at_once(
    deployment: SecuredDeployment, secured: SecuredBroker, env: dict[str, str], code: str, tmp_path: Path
) -> None:
    """Neither waits for what will not come: exit code 2, the code on the last line, no stack trace."""
    places = {"foreign": str(secured.foreign_cafile), "expired": secured.expired}
    wrong = {name: places.get(value, value) for name, value in env.items()}
    refused = deployment.start_worker(**deployment.env_of(ALL_STAGES) | wrong)
    assert refused.process.wait(60) == 2
    assert refused.tail().splitlines()[-1].startswith(f"assay-stream: {code}: ")
    assert "Traceback" not in refused.tail()
    observations = tmp_path / "observations.ndjson"
    observations.write_bytes(a_listing(0, 0, 0, 9, START)[2] + b"\n")
    told = cli_with(deployment, AccessRole.PROXY, wrong, "publish", "--from", "observations", str(observations))
    assert f"assay-stream: {code}: " in told


def test_a_tap_that_is_refused_says_why_and_lets_the_server_work(deployment: SecuredDeployment) -> None:
    """Observation must not break the call: the answer comes, and standard error says what to mend."""
    refused = deployment.as_user(AccessRole.PROXY, ASSAY_STREAM_SASL_PASSWORD="wrong")
    tap = ("tap", "--server-id", "s", "--", sys.executable, "-c", SERVER)
    done = refused.run(*tap, stdin=said(1, "tools/list"))
    assert done.returncode == 0
    assert "Says it again." in done.stdout
    assert "sasl_refused: " in done.stderr
    assert "Traceback" not in done.stderr
    assert "dropped 1 observation:" in done.stderr


# --- who may do what, by the real authorizer ----------------------------------------------------------------


def names_of(deployment: SecuredDeployment) -> dict[Role, str]:
    return topic_names(deployment.settings, agents="mine")


async def may_write(deployment: SecuredDeployment, user: str) -> set[Role]:
    producer = AIOKafkaProducer(**connection_options(deployment.as_user(user).settings), request_timeout_ms=10_000)
    taken = set()
    try:
        await producer.start()
        for role in Role:
            with suppress(TopicAuthorizationFailedError):
                await producer.send_and_wait(names_of(deployment)[role], b"of nobody", key=b"nobody", partition=0)
                taken.add(role)
    finally:
        await producer.stop()
    return taken


async def may_read(deployment: SecuredDeployment, user: str, role: Role) -> bool:
    partition = TopicPartition(names_of(deployment)[role], 0)
    consumer = AIOKafkaConsumer(**connection_options(deployment.as_user(user).settings), auto_offset_reset="earliest")
    consumer.assign([partition])
    try:
        await consumer.start()
        await consumer.seek_to_beginning(partition)
        await consumer.getmany(timeout_ms=500)
    except TopicAuthorizationFailedError:
        return False
    finally:
        await consumer.stop()
    return True


@pytest.fixture(scope="module")
def matrix(secured: SecuredBroker) -> SecuredDeployment:
    made = SecuredDeployment(secured.bootstrap, "matrix", broker=secured)

    async def set_up() -> None:
        await made.apply_topics(agents="mine")
        await made.grant()

    asyncio.run(set_up())
    return made


@pytest.mark.parametrize("actor", AccessRole)
def test_a_role_writes_and_reads_what_its_row_says_and_no_other_topic(
    matrix: SecuredDeployment, actor: AccessRole
) -> None:
    """Asked of the broker for every topic. A proxy can write neither evidence nor control nor bindings."""
    access = ACCESS[actor]

    async def ask() -> tuple[set[Role], set[Role]]:
        seen = await asyncio.gather(*(may_read(matrix, actor, role) for role in Role))
        return await may_write(matrix, actor), {role for role, may in zip(Role, seen, strict=True) if may}

    writes, reads = asyncio.run(ask())
    assert writes == access.writes
    assert reads == access.reads
    if actor is AccessRole.PROXY:
        assert writes == {Role.SNAPSHOTS, Role.CALLS}
        assert reads == {Role.VERDICTS}


def test_an_admin_finalises_and_sees_who_can_read_it(matrix: SecuredDeployment) -> None:
    """An analyst, who may read every topic, may do neither."""

    async def finalise(actor: AccessRole) -> list[Member]:
        settings = matrix.as_user(actor).settings
        async with open_admin(settings) as admin:
            members = await list_members(admin, settings)
        await write_finalised(settings, LEVEL)
        return members

    assert asyncio.run(finalise(AccessRole.ADMIN)) == []
    with pytest.raises(GroupAuthorizationFailedError):
        asyncio.run(finalise(AccessRole.ANALYST))


def test_a_console_decides_as_a_user_that_can_do_nothing_else(matrix: SecuredDeployment) -> None:
    """With the grants of its row; with those of an analyst nothing is recorded, and the error says so."""

    async def decide(actor: AccessRole) -> None:
        publish = KafkaPublish(matrix.as_user(actor).settings, new_id=lambda: f"decided-by-{actor}")
        try:
            await publish([ACKNOWLEDGE, ACKNOWLEDGE], "local:alice")
        finally:
            await publish.aclose()

    with pytest.raises(ConfigurationError, match="not_authorized"):
        asyncio.run(decide(AccessRole.ANALYST))
    asyncio.run(decide(AccessRole.CONSOLE))

    def decisions(records: Sequence[Record]) -> list[bytes]:
        return [record.value for record in records if record.value is not None and b"decided-by" in record.value]

    decided = decisions(asyncio.run(matrix.wait_for(Role.CONTROL, lambda records: len(decisions(records)) >= 2)))
    assert len(decided) == 2
    assert all(b"decided-by-console" in value and b"local:alice" in value for value in decided)


def test_a_worker_without_a_grant_stops_and_says_so(matrix: SecuredDeployment) -> None:
    """It may describe the topics of a join, and not join: exit code 2, and where to look."""
    refused = matrix.start_worker("--role", "join", **matrix.env_of(AccessRole.ANALYST))
    try:
        assert refused.process.wait(60) == 2
    finally:
        matrix.stop_workers()
    said = refused.tail().splitlines()[-1]
    assert said.startswith("assay-stream: not_authorized: this user lacks these rights: ")
    names = topic_names(matrix.settings)
    assert {f"Write on {names[role]}" for role in ACCESS[AccessRole.JOIN].writes} == set(
        re.findall(r"\w+ on [\w.-]+[\w-]", said)
    )
    assert "Traceback" not in refused.tail()
    assert "topics acls" in refused.tail()


def test_a_user_who_may_only_describe_reads_no_settings_and_is_told_so(matrix: SecuredDeployment) -> None:
    """A proxy's user sees its own topics; the settings of the others, and whether they are there, are not for it."""
    done = cli(matrix, AccessRole.PROXY, "topics", "show", "--json")
    states = {row["name"]: row["state"] for row in map(json.loads, done.stdout.splitlines())}
    names = topic_names(matrix.settings)
    assert {names[role]: states[names[role]] for role in (Role.CALLS, Role.SNAPSHOTS, Role.EVIDENCE)} == {
        names[Role.CALLS]: "unread",
        names[Role.SNAPSHOTS]: "unread",
        names[Role.EVIDENCE]: "missing",
    }


def test_a_process_that_may_describe_alone_names_each_right_that_it_lacks(
    matrix: SecuredDeployment, tmp_path: Path
) -> None:
    """Where somebody else creates topics and grants: nothing is read or written before all of it is there."""
    key = str(tmp_path / "seal.pem")
    assert cli(matrix, AccessRole.ADMIN, "seal", "keygen", "--out", key).returncode == 0
    done = cli(matrix, AccessRole.ADMIN, "seal", "--once", "--key", key)
    names = topic_names(matrix.settings)
    assert done.returncode == 2
    assert f"Read on {names[Role.EVIDENCE]}" in done.stderr
    assert f"Read, Write on {names[Role.CHECKPOINTS]}" in done.stderr


def test_a_restore_names_each_right_that_it_lacks(matrix: SecuredDeployment, tmp_path: Path) -> None:
    """Before anything is written. Deleting is needed where the log began later."""
    archive = an_archive(tmp_path, READ, prefix=matrix.settings.topic_prefix)
    done = cli(matrix, AccessRole.ANALYST, "topics", "restore", str(archive), "--apply")
    assert done.returncode == 2
    for role in READ:
        assert f"Delete, Write on {topic_names(matrix.settings)[role]}" in done.stderr
