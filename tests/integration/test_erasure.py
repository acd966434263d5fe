"""Erasure and legal hold on real Kafka: decided with a command, carried out in a store and in files, and checked."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.model.record import Role
from tests.support.deployment import Deployment
from tests.support.events import SERVER, TOOL, a_call, a_snapshot

pytestmark = pytest.mark.kafka

BOB, EVE = ({"kind": "agent", "agent_id": name} for name in ("bob", "eve"))
SCOPE = ("--agent", "bob", "--to-time", "2026-03-02T00:00:00Z", "--reason", "request 17")


async def run(deployment: Deployment, *arguments: object, code: int = 0) -> tuple[str, str]:
    done = await asyncio.to_thread(deployment.run, *arguments)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout, done.stderr


async def changes(deployment: Deployment, count: int) -> None:
    await deployment.wait_for(Role.CHANGES, lambda records: len(records) == count)


async def test_what_is_erased_and_what_is_held(deployment: Deployment, tmp_path: Path) -> None:
    """Shown and decided; gone from the store and from files, whose seals verify; then a hold forbids more of it."""
    deployment.env["ASSAY_STREAM_STORE_DAYS"] = "36500"
    await deployment.ready_worker()
    await deployment.send(Role.SNAPSHOTS, [(SERVER.encode(), a_snapshot(TOOL))])
    who = [BOB, EVE, BOB]
    calls = [a_call(number=n, second=n, tool_call_id=f"call-{n}", actor=actor) for n, actor in enumerate(who, start=1)]
    await deployment.send(Role.CALLS, [(SERVER.encode(), call) for call in calls])
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 3)
    key, store = tmp_path / "seal.pem", tmp_path / "store"
    await run(deployment, "seal", "keygen", "--out", key)
    await run(deployment, "seal", "--key", key, "--once")

    _, said = await run(deployment, "evidence", "erase", *SCOPE, "--id", "request-17", "--dry-run")
    assert f"{deployment.topics[Role.EVIDENCE]}: 2 records in the scope" in said
    await run(deployment, "evidence", "erase", *SCOPE, "--id", "request-17")
    await changes(deployment, 1)

    await run(deployment, "store", "run", "--store", store, "--once")
    listed, _ = await run(deployment, "evidence", "list", "--store", store, "--json")
    assert [json.loads(line)["agent_id"] for line in listed.splitlines()] == ["eve"]

    kept, erased = tmp_path / "kept", tmp_path / "erased"
    await run(deployment, "seal", "archive", "--output", kept)
    await run(deployment, "archive", "--output", tmp_path / "archive")
    await run(deployment, "evidence", "erase-files", "--input", kept, "--output", erased)
    assert b"bob" not in b"".join(path.read_bytes() for path in erased.iterdir())
    files = ("--evidence", erased, "--checkpoints", erased, "--key", tmp_path / "seal.pub.pem")
    checked, _ = await run(deployment, "seal", "verify", *files, "--control", tmp_path / "archive", "--format", "json")
    report: dict[str, Any] = json.loads(checked)
    assert (report["result"], [row["erased"] for row in report["erasures"]]) == ("holds", [2])
    assert sum(log["verified"] for log in report["logs"]) == 1
    # What Kafka has is untouched, and holds.
    await run(deployment, "seal", "verify", "--key", tmp_path / "seal.pub.pem")

    await run(deployment, "evidence", "hold", "--id", "case-9", "--reason", "case 9")
    await changes(deployment, 2)
    _, refused = await run(deployment, "evidence", "erase", *SCOPE, code=2)
    assert "held" in refused
    listed, expiring = await run(deployment, "evidence", "erasures", code=1)
    assert "hold.set case-9" in listed
    assert "state in force" in listed
    assert f"--entity-name {deployment.topics[Role.CALLS]} --add-config retention.ms=-1" in expiring
    assert f"kafka-configs.sh --bootstrap-server {deployment.bootstrap} --alter " in expiring
    assert deployment.topics[Role.EVIDENCE] not in expiring
    await run(deployment, "store", "run", "--store", store, "--once")
    _, refused = await run(deployment, "store", "run", "--store", store, "--once", "--rebuild", code=2)
    assert "held" in refused
    _, refused = await run(deployment, "archive", "--output", tmp_path / "archive", "--force", code=2)
    assert "held" in refused
    _, refused = await run(deployment, "evidence", "release", "--id", "case-8", "--reason", "closed", code=2)
    assert "hold_not_known: there is no legal hold case-8, only case-9" in refused
    await run(deployment, "evidence", "release", "--id", "case-9", "--reason", "closed")
    assert "state no longer in force" in "".join(await run(deployment, "evidence", "erasures"))
