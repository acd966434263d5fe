"""The documentation is checked by code: examples run, tables match the models, links lead somewhere."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from assay_stream.agents.shipped import toxic_flow_agent
from assay_stream.config import Settings
from assay_stream.model import cloudevents, control, evidence, kinds, wire
from assay_stream.model.evidence import Producer
from assay_stream.model.record import TOPIC_NAMES, Origin, Record, Role
from assay_stream.schemes import fingerprint
from tests.support import exports, gates
from tests.support.command import invoke
from tests.support.events import event_at
from tests.support.inventory import without_inventory
from tests.support.replaying import replay
from tests.support.vectors import vectors

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCES = ROOT / "src" / "assay_stream"

_FENCE = re.compile(r"^```([a-z-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]*)(?:#([^)]*))?\)")
_ERROR_CLASSES = {
    "ConnectionRefusal",
    "Refusal",
    "AssayStreamError",
    "InputError",
    "ConfigurationError",
    "OperatingError",
    "IntegrityError",
}


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[tuple[str, str]]:
    return _FENCE.findall(text_of(name))


def rows(name: str, heading: str) -> list[list[str]]:
    section = text_of(name).split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]
    assert table, f"no table under {heading!r}"
    return table


# --- verify-a-digest-by-hand.md -----------------------------------------------------------------------------


def run_block(language: str, code: str, folder: Path) -> str:
    command = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [sys.executable, "-I", "-c", code]
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("jq") is None, reason="the page uses jq")
def test_the_page_on_verifying_by_hand_runs_as_it_stands(tmp_path: Path) -> None:
    """Each block of the page prints what stands under it, and the digests are the published vectors'."""
    page = blocks("verify-a-digest-by-hand.md")
    assert "assay_stream" not in "".join(code for language, code in page)
    printed = ""
    for (language, code), (next_language, expected) in zip(page, [*page[1:], ("", "")], strict=True):
        if language in {"bash", "python"}:
            output = run_block(language, code, tmp_path)
            assert output == (expected if next_language == "text" else "")
            printed += output
    cases = {case["id"]: case for case in vectors("assay_tool_definition_p56b")["cases"]}
    unscoped, scoped = cases["simple"]["unscoped"], cases["simple_scoped"]["scoped"]
    for case in (unscoped, scoped):
        assert printed.count(case["tool_definition_digest"]) >= 2
        assert case["canonical"] in printed
    assert json.loads((tmp_path / "definition.json").read_text())["definition"] == json.loads(
        cases["simple"]["input_raw"]
    )


def test_the_records_on_that_page_are_what_the_engine_writes() -> None:
    """The definition and the evidence of the worked example are the engine's own, byte for byte."""
    case = next(case for case in vectors("assay_tool_definition_p56b")["cases"] if case["id"] == "simple_scoped")
    snapshot = {
        "server_id": "server-a",
        "observer_id": "proxy-1",
        "snapshot_id": "snapshot-1",
        "server_scoped": True,
        "completeness": "complete",
        "tools": [json.loads(case["input_raw"])],
    }
    call = {
        "server_id": "server-a",
        "observer_id": "proxy-1",
        "tool_name": "read_file",
        "tool_call_id": "call-1",
        "decision": "allow",
        "reason_code": "P_OK",
    }
    records = [
        _record(Role.SNAPSHOTS, "mcp.tools.list.observed", "list-1", "2026-03-01T10:00:00Z", snapshot),
        _record(Role.CALLS, "mcp.tools.call.observed", "call-1", "2026-03-01T10:00:05Z", call),
    ]
    page = text_of("verify-a-digest-by-hand.md")
    # A claim to a name says nothing of a digest's making.
    for output in without_inventory(replay(records, producer=Producer(version="0.1.0"))):
        if output.role is Role.FINDINGS:
            continue
        assert (output.value or b"").decode() + "\nEOF" in page, f"put this {output.role} record on the page"


def _record(role: Role, kind: str, id_: str, time: str, data: dict[str, Any]) -> Record:
    return Record(
        role=role,
        origin=Origin(topic=TOPIC_NAMES[role], partition=0, offset=0),
        key=b"server-a",
        value=event_at(datetime.fromisoformat(time), kind, id_, data, source="urn:proxy-1", time=time),
        timestamp_ms=1_772_359_205_000,
    )


# --- digests-and-signatures.md ------------------------------------------------------------------------------


_NEGATION = re.compile(r"\b(no|not|never|nothing|nor|neither|without|un\w+)\b", re.IGNORECASE)
_CLAIM = re.compile(r"\b(safe|trusted|verified|trustworthy|harmless|guarantee[sd]?)\b", re.IGNORECASE)


@pytest.mark.parametrize("page", sorted(path.relative_to(DOCS) for path in DOCS.rglob("*.md")), ids=str)
def test_no_claim_of_trust_is_made(page: Path) -> None:
    """Where a page says safe, trusted or verified, the sentence denies it, or tells of another's claim."""
    plain = " ".join(_FENCE.sub("", text_of(str(page))).split())
    for sentence in re.split(r"(?<=[.:;!?])\s|\s\|\s|\s\*\s", plain):
        if _CLAIM.search(sentence) and not _NEGATION.search(sentence):
            raise AssertionError(f"{page}: {sentence}")


# --- operations.md ------------------------------------------------------------------------------------------


_CONFIG_READERS = ("config_of", "entries_of", "read_config", "read_toml")
"""They take the code of the error as an argument."""


def error_codes() -> set[str]:
    codes = set(cloudevents._CODE_OF_PYDANTIC_TYPE.values()) | {"wrong_type"}
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _called(node) in _ERROR_CLASSES and node.args:
                codes |= set(_code(node.args[0]))
            elif isinstance(node, ast.Call) and ast.unparse(node).startswith("partial(_failing, "):
                codes |= set(_code(node.args[1]))
            elif isinstance(node, ast.Call) and _called(node) in _CONFIG_READERS:
                codes |= {code for each in node.args for code in _code(each) if code.startswith("bad_")}
    return codes


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _code(argument: ast.expr) -> Iterator[str]:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        yield argument.value
    elif isinstance(argument, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in argument.values)


def test_every_error_code_is_explained() -> None:
    """Each code in the sources has an entry that says what to do; no entry is left over."""
    explained = set(tomllib.loads((DOCS / "data" / "error_codes.toml").read_text(encoding="utf-8")))
    unused = set(explained)
    for code in error_codes():
        pattern = re.compile(code.replace("*", "[a-z_]+"))
        matches = {name for name in explained if pattern.fullmatch(name)}
        assert matches, f"docs/data/error_codes.toml does not explain the error code {code}"
        unused -= matches
    assert unused == set(), "codes that nothing raises"


# --- security.md --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threat", rows("security.md", "Threats"), ids=lambda row: row[0][:40])
def test_what_is_done_about_a_threat_is_shown(threat: list[str]) -> None:
    """By a test, or the page that says why there is none; and each row says what remains."""
    _, _, shown_by, remains = threat
    assert shown_by.startswith("`tests/") or shown_by.strip("`").endswith(".md")
    assert remains


def test_every_secret_has_its_file() -> None:
    """The table of secrets names each setting that is one, and the file in its place."""
    secret = {name for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)}
    named = {row[1].strip("`") for row in rows("security.md", "Secrets")}
    assert {f"ASSAY_STREAM_{name.upper()}" for name in secret} == {
        name for name in named if name.startswith("ASSAY_STREAM_")
    }
    assert all(f"{name}_file" in Settings.model_fields for name in secret)


# --- enforce.md ---------------------------------------------------------------------------------------------


def test_the_example_of_embedding_the_verdict_client_runs() -> None:
    """As it stands, but for the broker: without one the call is refused, and the reason says so."""
    [example] = [code for language, code in blocks("enforce.md") if language == "python"]
    code = example.replace("broker-1:9092", "127.0.0.1:1").replace("wait_ready(5.0)", "wait_ready(0.2)")
    assert code.count("127.0.0.1:1") == code.count("wait_ready(0.2)") == 1
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"PYTHONPATH": str(SOURCES.parent)},
    )
    assert done.stdout == "refused: verdicts_unavailable\n"


def test_the_refusal_on_that_page_is_what_the_gate_says() -> None:
    """Code, message and fields, but for the digests."""
    [shown] = [json.loads(code) for language, code in blocks("enforce.md") if language == "json"]
    tool, other = gates.a_tool("get_current_time"), gates.a_tool("get_current_time", "Other.")
    talk = gates.Connection(gates.pinned(tool))
    talk.lists(other)
    said = gates.answer(talk.calls("get_current_time"))
    for answer in (said, shown):
        assert answer["error"]["data"].pop("expected").startswith("sha256:")
        assert answer["error"]["data"].pop("observed").startswith("sha256:")
        del answer["error"]["data"]["server_id"]
    assert said["error"]["data"] == shown["error"]["data"]
    assert said["error"]["message"] == shown["error"]["message"]
    assert (said["id"], said["error"]["code"]) == (shown["id"], shown["error"]["code"])


# --- export.md ----------------------------------------------------------------------------------------------


def test_the_commands_and_queries_on_that_page_run(tmp_path: Path) -> None:
    """Over what a replay of a fleet writes: each command as it stands, and each query finds something."""
    outputs = exports.replayed(400)
    (tmp_path / "out").mkdir()
    for role in (Role.EVIDENCE, Role.ALERTS, Role.DEFINITIONS):
        exports.a_file(tmp_path / "out" / f"{role}.ndjson", *exports.values(outputs, role))
    commands = [line for language, code in blocks("export.md") if language == "bash" for line in code.splitlines()]
    assert len(commands) == 5
    for command in commands:
        if not command.startswith("pip install"):
            subprocess.run(
                [sys.executable, "-m", *command.replace("assay-stream", "assay_stream").split()],
                cwd=tmp_path,
                capture_output=True,
                timeout=60,
                check=True,
                env=os.environ | {"PYTHONPATH": str(SOURCES.parent)},
            )
    queries = [code for language, code in blocks("export.md") if language == "sql"]
    assert len(queries) == 4
    for query in queries:
        with duckdb.connect() as database:
            found = database.execute(query.replace("'datasets/", f"'{tmp_path}/datasets/")).fetchall()
        assert found, query


def test_the_hunt_on_that_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On what the demo writes; each command finds something."""
    monkeypatch.chdir(tmp_path)
    assert invoke("demo", "--no-broker").exit_code == 0
    page = (DOCS / "hunting.md").read_text(encoding="utf-8")
    hunt = [line.split()[2:] for line in page.splitlines() if line.startswith("$ ") and "assay-stream-demo" in line]
    assert len(hunt) == 7
    for command in hunt:
        done = invoke(*command)
        assert (done.exit_code, "search_notes" in done.stdout) == (0, True), command


def test_every_value_of_our_own_vocabulary_is_in_the_glossary() -> None:
    """Scopes, reasons, kinds of finding, kinds of fact, pin states and schemes are explained there."""
    page = text_of("glossary.md")
    words = [*evidence.Scope, *evidence.Unbound, *kinds.Kind, *control.PinStatus, *wire.FACTS, *fingerprint.SCHEMES]
    missing = [str(word) for word in words if f"`{word}`" not in page]
    assert missing == []


_PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
_NAMED = re.compile(r"`((?:[a-z_]+/)+\w+\.(?:py|toml))(?:::(\w+))?")


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_names_of_files_lead_somewhere(page: Path) -> None:
    """Relative links and names from the root of the repository or of the package name files, and tests, that exist."""
    text = page.read_text(encoding="utf-8")
    for target, heading in _LINK.findall(_FENCE.sub("", text)):
        if not target.startswith(("http:", "https:")):
            found = page.parent.joinpath(target) if target else page
            assert found.exists(), target
            assert not heading or heading in _anchors(found), f"{target}#{heading}"
    for name, test in _NAMED.findall(text):
        [file] = [folder / name for folder in (ROOT, SOURCES) if (folder / name).exists()] or [None]
        assert file is not None, name
        assert not test or f"def {test}(" in file.read_text(encoding="utf-8"), f"{name}::{test}"


# --- deploy/ and LICENSE ------------------------------------------------------------------------------------


def test_compose_runs_the_broker_version_that_the_tests_run() -> None:
    """The image has the version of the local broker's jars."""
    compose = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    pom = (ROOT / "deploy" / "local" / "kafka" / "pom.xml").read_text(encoding="utf-8")
    version = re.search(r"<kafka\.version>(.+?)</kafka\.version>", pom)
    assert version is not None
    assert f"image: ${{KAFKA_IMAGE:-apache/kafka:{version[1]}}} " in compose


# --- agents.md ----------------------------------------------------------------------------------------------


def of_agents() -> list[str]:
    return [code for language, code in blocks("agents.md") if language == "python"]


def test_the_tutorial_ends_with_tests_that_pass(tmp_path: Path) -> None:
    """Its module and its tests, run as printed."""
    (tmp_path / "my_detections.py").write_text(of_agents()[0], encoding="utf-8")
    (tmp_path / "test_my_detections.py").write_text(of_agents()[1], encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_detections.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_labels_of_the_operator_are_given_as_documented() -> None:
    """The last snippet declares an agent."""
    names: dict[str, object] = {}
    exec(of_agents()[2], names)  # noqa: S102 -- our own page
    assert type(names["agent"]) is type(toxic_flow_agent)
