"""Command lines that cannot be meant: each is refused before anything starts, and the message says what to mend."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from assay_stream.config import command_settings, load_settings
from tests.support.command import run_command_text
from tests.support.deployment import free_port

WIRE = Path(__file__).resolve().parents[2] / "data" / "captures" / "wire" / "mcp-server-time@2026.10.19.jsonl"
FILES = {
    "empty.toml": "",
    "list.json": '{"tools": []}',
    "local.toml": '[local]\nusers = "u"\n',
    "no-servers.toml": "servers = []",
    "proxy.toml": 'proxies = ["10.0.0.1"]\n[proxy]\nuser_header = "X-User"\nviewers = ["*"]\n',
    "servers.yaml": "servers: []",
    "upstreams.yaml": "upstreams: []",
}

FORWARD = ("alerts", "forward")
WEBHOOK = (*FORWARD, "--to", "webhook:https://h/")
SUPPRESS = ("alerts", "suppress", "--server-id", "s", "--id", "rule-1", "--reason", "noise", "--output", "o")
CONSOLE = ("console", "--store", "s")
USER = ("console", "user")
INGEST = ("ingest", "--clients", "missing.toml")
PUBLISH = ("publish", "--from")
COMPARE = ("replay", "--from-kafka", "--compare")
ACCEPT = ("keys", "accept", "--server-id", "s", "--reason", "r", "--output", "o")
KEY = "sha256:" + "a" * 64
FETCH = ("schemapin", "fetch", "--server-id", "s", "--output", "-")
LISTEN = ("tap", "--listen", "127.0.0.1:0", "--output", "/dev/null")
ONE = ("--server-id", "a", "--upstream", "https://a.example/mcp")
WATCH = ("list-watch", "--once", "--config")

CASES: list[tuple[tuple[str, ...], str]] = [
    # What no command or option is called
    (("novelty",), "novelty"),
    (("--novelty",), "--novelty"),
    (("replay",), "no_destination"),
    (("topics", "novelty"), "novelty"),
    (("worker", "--role", "x"), "--role"),
    (("policy", "set", "--server-id", "s", "--enforcement", "shout", "--reason", "r", "--output", "o"), "shout"),
    ((*SUPPRESS, "--kind", "novelty"), "novelty"),
    (("drift", "list.json", "list.json", "--profile", "none"), "--profile"),
    (("drift", "list.json", "list.json", "--fail-on", "none"), "--fail-on"),
    (("validate", "--profile", "other"), "--profile"),
    (("validate",), "--profile"),
    # Alerts
    (("alerts", "export", "--since", "soon"), "bad_time"),
    ((*FORWARD, "--to", "mail:soc@example.com"), "bad_receiver: "),
    ((*FORWARD, "--to", "syslog:h:514", "--hmac-variable", "X"), "bad_option"),
    ((*WEBHOOK, "--header", "X-Key"), "bad_option"),
    ((*WEBHOOK, "--header", "X-Key=NOT_SET_ANYWHERE"), "secret_missing"),
    ((*WEBHOOK, "--group", "assay-stream-join"), "bad_group"),
    ((*WEBHOOK, "--group", " "), "bad_group"),
    (FORWARD, "bad_option"),
    ((*WEBHOOK, "--config", "r.toml"), "bad_option"),
    ((*WEBHOOK, "--enterprise", "99"), "--enterprise is for syslog"),
    ((*FORWARD, "--config", "r.toml", "--timeout-s", "10"), "go into the --config file"),
    ((*FORWARD, "--config", "/not/there.toml"), "bad_receivers"),
    ((*SUPPRESS, "--tool", "[abc"), "bad_pattern"),
    ((*SUPPRESS, "--until", "tomorrow"), "bad_time"),
    ((*SUPPRESS, "--until", "2020-01-01"), "bad_time"),
    ((*SUPPRESS, "--field", ""), "empty_value"),
    # Decisions
    (("policy", "plan", "--server-id", "s"), "bad_option"),
    (("policy", "plan", "--server-id", "s", "--remove", "--enforcement", "block"), "bad_option"),
    ((*ACCEPT, "--domain", "example.com", "--fingerprint", "abc"), "bad_digest: --fingerprint"),
    ((*ACCEPT, "--domain", "Not A Domain", "--fingerprint", KEY), "bad_format"),
    # The console: beyond this machine unless something in front asks for a login, and without a store or an address
    (("console",), "no_store"),
    (("store", "status"), "no_store"),
    (("store", "run"), "no_store"),
    ((*CONSOLE, "--listen", "0.0.0.0:0"), "--behind-login"),
    ((*CONSOLE, "--listen", "0.0.0.0:0", "--behind-login"), "--allow-host"),
    ((*CONSOLE, "--listen", "8090"), "cannot_listen"),
    ((*CONSOLE, "--tls-cert", "missing.pem"), "cannot_listen"),
    ((*CONSOLE, "--decide"), "--decide needs --identity"),
    ((*CONSOLE, "--identity", "missing.toml"), "cannot read missing.toml"),
    ((*CONSOLE, "--identity", "empty.toml"), "one of the tables"),
    ((*CONSOLE, "--identity", "local.toml"), "console user add"),
    ((*CONSOLE, "--identity", "local.toml", "--listen", "0.0.0.0:0"), "over TLS only"),
    ((*USER, "add", "alice", "--role", "admin"), "--role is viewer or operator"),
    ((*USER, "add", "al ice"), "bad_user"),
    ((*USER, "add", "alice", "--identity", "proxy.toml"), "no table [local]"),
    ((*USER, "remove", "alice"), "cannot read console.toml"),
    ((*USER, "remove", "alice", "--identity", "local.toml"), "no such user"),
    ((*USER, "list", "--identity", "proxy.toml"), "no table [local]"),
    # Observing: tokens and calls do not cross a network in the clear, unless somebody says that TLS ends before
    (("tap", "--server-id", "a"), "server_not_started"),
    (("tap", "--", "cat"), "server_not_started"),
    (("tap", "--server-id", "a", "--enforce-unavailable", "allow", "--", "cat"), "needs --enforce"),
    (("tap", "--enforce", "hidden", "--server-id", "a", "--", "cat"), "'hidden' is not one of 'calls', 'hide'"),
    (("tap", "--upstream", "https://a.example", "--server-id", "a", "--", "cat"), "need --listen"),
    ((*LISTEN, *ONE, "--", "cat"), "takes no command"),
    (LISTEN, "give --server-id and --upstream"),
    ((*LISTEN, "--server-id", "a"), "give --server-id and --upstream"),
    ((*LISTEN, *ONE, "--upstreams", "x.toml"), "give either"),
    ((*LISTEN, "--upstreams", "/nowhere.toml"), "cannot read /nowhere.toml"),
    ((*LISTEN, "--upstreams", "upstreams.yaml"), "bad_upstream: upstreams.yaml: line 1: not TOML. YAML"),
    ((*LISTEN, "--server-id", "a", "--upstream", "https://u:secret@a.example/mcp"), "bad_upstream"),
    (("tap", "--listen", "8080", *ONE), "cannot_listen"),
    (("tap", "--listen", "127.0.0.1:99999", *ONE), "cannot_listen"),
    ((*LISTEN, *ONE, "--tls-cert", "/nowhere.pem"), "cannot_listen: cannot use /nowhere.pem: No such file"),
    ((*LISTEN, *ONE, "--tls-cert", "/a.pem", "--tls-key", "/b.pem"), "cannot use /a.pem with /b.pem: No such file"),
    *(
        ((*command, "--tls-key", "key.pem"), "bad_option: --tls-key and --client-ca need --tls-cert")
        for command in ((*LISTEN, *ONE), CONSOLE, INGEST)
    ),
    ((*LISTEN, *ONE, "--upstream-ca", "/nowhere.pem"), "cannot_listen: cannot use /nowhere.pem: No such file"),
    ((*WATCH, "servers.yaml"), "assay-stream: bad_servers: servers.yaml"),
    ((*WATCH, "no-servers.toml"), "assay-stream: bad_servers: no-servers.toml"),
    ((*WATCH, "missing.toml"), "assay-stream: bad_servers: cannot read missing.toml"),
    (("ingest",), "bad_option"),
    (INGEST, "bad_clients"),
    ((*INGEST, "--listen", "0.0.0.0:8088"), "bad_option"),
    ((*INGEST, "--listen", "8088"), "cannot_listen"),
    ((*INGEST, "--client-ca", "ca.pem"), "bad_option"),
    ((*INGEST, "--tls-cert", "missing.pem"), "cannot_listen"),
    ((*PUBLISH, "mcp-wire", "--server-id", "s", "--dry-run", str(WIRE)), "bad_option"),
    ((*PUBLISH, "mcp-wire", "--server-id", "s", "--output", "x", str(WIRE)), "bad_option"),
    ((*PUBLISH, "mcp-wire", "--dry-run", "--output", "x", str(WIRE)), "bad_option"),
    ((*PUBLISH, "assay-log", "--dry-run", "--output", "x", str(WIRE)), "bad_option"),
    ((*PUBLISH, "novelty", str(WIRE)), "novelty"),
    (("publish", str(WIRE)), "--from"),
    ((*PUBLISH, "hangar"), "bad_option"),
    ((*PUBLISH, "hangar", "--topic", "t"), "bad_option"),
    ((*PUBLISH, "otlp-json", "--topic", "t", "spans.json"), "bad_option"),
    ((*PUBLISH, "mcp-wire", "f"), "bad_option"),
    ((*PUBLISH, "mcp-wire", "--server-id", "s", "--prefix", "git_=git", "f"), "--prefix and --span-kind are for logs"),
    *(
        ((*PUBLISH, "observations", "--dry-run", "--output", "x", *option, "-"), "bad_option: observations name")
        for option in (("--observer-id", "me"), ("--server-id", "mine"), ("--unscoped",))
    ),
    *(
        (("keys", *command, "--server-id", "s", "--fingerprint", "ab" * 32, "--reason", "r"), "sha256:<64 lowercase")
        for command in (("revoke",), ("accept", "--domain", "example.com"))
    ),
    # Schemas: plain HTTP, a CA file that is not there, a name that no record may carry
    ((*FETCH, "--domain", "http://example.com"), "bad_domain"),
    ((*FETCH, "--domain", "localhost", "--ca-file", "/missing.pem"), "bad_tls_file"),
    ((*FETCH, "--domain", "localhost", "--observer-id", " "), "bad_identifier"),
    (("drift", *["list.json"] * 3), "bad_option"),
    (("drift", "list.json", "--as", "p60"), "bad_option"),
    *(
        (("drift", "list.json", "list.json", "--as", "p60", *option), "leave --profile and --format out")
        for option in (("--profile", "soc"), ("--format", "sarif"))
    ),
    (("drift", "/missing.json", "/missing.json"), "unreadable_file: cannot read /missing.json"),
    (("fingerprint", "empty.toml"), "not_json: empty.toml"),
    (("fingerprint", "/missing.json"), "unreadable_file: cannot read /missing.json"),
    (("handshake", "check", "--server-id", "s", "/missing.json"), "unreadable_file: cannot read /missing.json"),
    (("validate", "--profile", "assay", "/missing.json"), "unreadable_file: cannot read /missing.json"),
    (("bundle", "verify", "/missing.tar.gz"), "unreadable_file: cannot read /missing.tar.gz"),
    # Agents: one that fails would end the stage; topics are named after them
    (("worker", "--agents", "mine", "--role", "join"), "bad_option"),
    (("worker", "--agents", "no_such_module"), "cannot import 'no_such_module'"),
    (("worker", "--agents", "tests.support.agents"), "no agent"),
    *(
        (("topics", "apply", "--agents", agents), "digits and underscores")
        for agents in ("", "Mine", "my-agents", "mine:An agent", "mine." + "a" * 65)
    ),
    # Verification is of one source, and a comparison of everything
    (("verify",), "bad_option"),
    (("verify", "--from-kafka", "--input", "x"), "bad_option"),
    (("evidence", "list", "--decision", "denny"), "not one of 'allow', 'deny', 'requires_approval', 'error'"),
    (("verify", "--evidence", "x"), "bad_option"),
    (("compare", "--input", "x"), "bad_option"),
    (("compare", "--from-kafka", "--alerts", "x"), "bad_option"),
    (("trace",), "bad_option"),
    (("servers", "list", "--input", "x", "--evidence", "x"), "bad_option"),
    (("alerts", "list", "--follow", "--input", "x"), "bad_option"),
    (("export", "timesketch", "--input", "list.json", "--output", "t.json"), "bad_option"),
    (("archive", "--output", "x", "--all-topics", "--topics", "calls"), "bad_option"),
    (("archive", "--output", "x", "--all-topics", "--server-id", "s"), "bad_option"),
    (("seal", "verify", "--evidence", "x"), "--key"),
    (("seal", "verify", "--evidence", "x", "--key", "missing.pem"), "seal_key_missing"),
    (("replay", "--output", "x"), "no_source"),
    (("replay", "--from-kafka"), "no_destination"),
    (("replay", "--input", "x", "--output", "x", "--offsets", "y"), "bad_offsets"),
    (("replay", "--input", "x", "--to-kafka", "--topic-prefix", ""), "live_topics"),
    ((*COMPARE, "--to-kafka"), "bad_option"),
    *((("replay", "--from-kafka", "--output", "x", each, "-"), "give it too") for each in ("--evidence", "--alerts")),
    (("coverage", "--input", "list.json", "--silent-after", "inf"), "less than or equal to"),
    ((*COMPARE, "--output", "x", "--server-id", "s"), "bad_option"),
    ((*COMPARE, "--output", "x", "--evidence", "e"), "bad_option"),
    ((*COMPARE, "--output", "x", "--alerts", "a"), "bad_option"),
]
EXTMCP = [
    (("--prefix", "github_"), "bad_prefix"),
    (("--server", "github"), "bad_option"),
    (("--client-ca", "ca.pem"), "bad_option"),
    (("--tls-cert", "missing.pem"), "cannot_listen"),
    (("--tls-cert", "servers.yaml"), "cannot_listen: cannot use servers.yaml"),
    (("--listen", "nowhere"), "cannot_listen"),
    (("--listen", "0.0.0.0:0"), "bad_option"),
    (("--listen", "[::]:0"), "bad_option"),
    (("--listen", "192.0.2.1:0", "--behind-tls"), "cannot_listen"),
    (("--server-id", " "), "bad_identifier"),
]


def refused(folder: Path, arguments: tuple[str, ...], said: str, **env: str) -> None:
    """The exit code is 2, the message names what is wrong, nothing is printed or written."""
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    done = run_command_text(*arguments, stdin=b"correct horse battery\n", **env)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "Value error" not in done.stderr
    assert "secret" not in done.stderr.replace("secret_missing", "")
    assert {path.name for path in folder.iterdir()} == FILES.keys()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("arguments", "said"), CASES)
def test_what_cannot_be_meant_is_refused(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    refused(folder, arguments, said)


@pytest.mark.parametrize(("options", "said"), EXTMCP)
def test_what_cannot_be_served_to_agentgateway_is_refused(folder: Path, options: tuple[str, ...], said: str) -> None:
    pytest.importorskip("grpc", reason="the extra extmcp is not installed")
    refused(folder, ("extmcp", "--output", "/dev/null", *options), f"{said}: ")


@pytest.mark.parametrize("command", [("worker",), ("topics", "apply"), ("topics", "show")])
def test_a_wrong_setting_is_named(folder: Path, command: tuple[str, ...]) -> None:
    said = "assay-stream: bad_setting: ASSAY_STREAM_BATCH_RECORDS_MAX"
    refused(folder, command, said, ASSAY_STREAM_BATCH_RECORDS_MAX="many")


# --- no broker answers ----------------------------------------------------------------------------------------


COMMANDS = [
    ("topics", "show"),
    ("topics", "apply"),
    ("topics", "finalize"),
    ("pins", "list"),
    ("policy", "list"),
    ("asof", "--server-id", "s", "--at", "2026-03-01T10:00:00Z"),
    ("asof", "--server-id", "s", "--from-log"),
    ("timeline", "--server-id", "s"),
    ("trace", "--tool-call-id", "c"),
    ("verify", "--from-kafka"),
    ("verify", "--from-kafka", "--expect", "all"),
    ("compare", "--from-kafka"),
    ("replay", "--from-kafka", "--output", "out"),
    ("replay", "--from-kafka", "--compare", "--output", "out"),
    ("archive", "--output", "out"),
    ("export", "assay-bundle", "--output", "out.tar.gz"),
    ("alerts", "list"),
    ("servers", "list"),
    ("tools", "list"),
    ("evidence", "list"),
    ("evidence", "tail"),
    ("policy", "plan", "--server-id", "s", "--enforcement", "block"),
    ("policy", "set", "--server-id", "s", "--enforcement", "block", "--reason", "r"),
    ("alerts", "export"),
    ("pins", "approve", "--server-id", "s", "--tool", "t", "--reason", "r"),
]


def test_every_command_says_soon_that_no_broker_answers(tmp_path: Path) -> None:
    """First that it waits for it; and not after the limit of a worker. They wait side by side."""
    address = f"127.0.0.1:{free_port()}"
    env = os.environ | {
        "ASSAY_STREAM_BOOTSTRAP_SERVERS": address,
        "ASSAY_STREAM_COMMAND_CONNECT_LIMIT_S": "5",
        "ASSAY_STREAM_CONNECT_LIMIT_S": "3600",
    }
    started = []
    for number, command in enumerate(COMMANDS):
        (folder := tmp_path / str(number)).mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", "assay_stream", *command],
            cwd=folder,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append((command, process))
    for command, process in started:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 3, (command, said)
        waits, failed = said.splitlines()
        assert f"no Kafka broker answers at {address} yet" in waits, command
        assert f"broker_unreachable: no Kafka broker answers at {address}, tried" in failed, command


def test_a_command_gives_up_sooner_than_a_worker() -> None:
    assert load_settings().connect_limit_s == 60
    assert command_settings().connect_limit_s == 10
    assert command_settings(command_connect_limit_s=3).connect_limit_s == 3


# --- an address that is taken ---------------------------------------------------------------------------------


def test_an_address_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_command_text("tap", "--listen", address, "--output", "/dev/null", *ONE)
    assert done.returncode == 2
    assert f"cannot listen on {address}: Address already in use. Give a free host:port" in done.stderr
