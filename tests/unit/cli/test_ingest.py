"""``assay-stream ingest`` and ``ingest token`` before any broker is asked."""

import json
from pathlib import Path

from assay_stream.ingest.requests import read_clients
from tests.support.command import run_command_text

ROOT = Path(__file__).parents[3]


def token(clients: Path, *arguments: str) -> str:
    made = run_command_text("ingest", "token", "--clients", str(clients), *arguments)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_a_token_is_printed_once_and_its_hash_is_kept(tmp_path: Path) -> None:
    """In a file that only its owner reads; what is there stays."""
    path = tmp_path / "clients.toml"
    tokens = [token(path, "--observer-id", "gw: 1", "--server", "time", "--server", "a-*", "--days", "3")]
    path.write_text(f"# a comment\n{path.read_text()}# another")
    tokens.append(token(path, "--observer-id", "gw-2", "--server", "*"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert not any(each in path.read_text() for each in tokens)
    known = read_clients(path.read_bytes(), "clients")
    found = [known.of([f"Bearer {each}"], [], now_us=0) for each in tokens]
    assert [each.observer_id for each in found] == ["gw: 1", "gw-2"]
    assert [each.expires_us is None for each in found] == [False, True]


def test_a_file_that_is_wrong_gets_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "clients.toml"
    path.write_text("clients = {}\n")
    made = run_command_text("ingest", "token", "--clients", str(path), "--observer-id", "gw", "--server", "*")
    assert (made.returncode, made.stdout) == (2, "")
    assert "bad_clients" in made.stderr
    assert path.read_text() == "clients = {}\n"


def test_openapi_is_the_file_in_schemas() -> None:
    """Without clients, and without a broker."""
    printed = run_command_text("ingest", "--openapi")
    assert printed.stdout == (ROOT / "schemas" / "openapi.json").read_text(encoding="utf-8")
    document = json.loads(printed.stdout)
    assert set(document["paths"]["/v1/events"]["post"]["responses"]) >= {"202", "207", "403", "422", "429", "503"}
