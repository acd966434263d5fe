"""Who decides, and how it gets to the log."""

from __future__ import annotations

import asyncio
import getpass
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from assay_stream.cli import decisions, publishing
from assay_stream.cli.alerts import unsuppress
from assay_stream.cli.decisions import Deciding, DecidingOnServer, author_or_login
from assay_stream.config import Settings
from assay_stream.errors import InputError, OperatingError
from assay_stream.model.control import PIN_SET_TYPE, POLICY_SET_TYPE
from assay_stream.model.record import Origin, Record, Role
from assay_stream.observe import Observation, SinkStats
from tests.support import facts
from tests.support.controls import a_control
from tests.support.operators import a_state

POLICY = {"server_id": "s", "enforcement": "warn", "unknown": "warn"}


@pytest.mark.parametrize("error", [OSError, KeyError])
def test_a_container_without_users_asks_for_an_author(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def fail() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", fail)
    with pytest.raises(InputError, match=r"author_unknown.*--author"):
        author_or_login(None)


def test_decisions_of_one_command_count_from_one_moment(tmp_path: Path) -> None:
    by = Deciding(reason="r", author="ann", output=tmp_path / "o")
    by.decide((POLICY_SET_TYPE, POLICY), (POLICY_SET_TYPE, POLICY | {"tool_name": "t"}))
    events = [json.loads(line) for line in (tmp_path / "o").read_bytes().splitlines()]
    assert len(events) == 2
    assert len({event["time"] for event in events}) == 1
    assert len({event["id"] for event in events}) == 2


def test_one_wrong_decision_stops_all(tmp_path: Path) -> None:
    by = Deciding(reason="r", author="ann", output=tmp_path / "o")
    with pytest.raises(InputError):
        by.decide((POLICY_SET_TYPE, POLICY), (POLICY_SET_TYPE, POLICY | {"enforcement": "x"}))
    assert not (tmp_path / "o").exists()


def test_a_decision_that_was_not_delivered_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With how many, and that deciding again does no harm."""

    class Admin:
        async def close(self) -> None:
            """Do nothing."""

    class Publisher:
        stats = SinkStats(accepted=1)

        def __init__(self, *_: Any, **__: Any) -> None:
            """Take anything."""

        def __enter__(self) -> Publisher:
            return self

        def __exit__(self, *_: object) -> None:
            """Do nothing."""

        def publish(self, observation: Observation) -> bool:
            return bool(observation)

        async def aclose(self, timeout_s: float) -> None:
            await asyncio.sleep(0 * timeout_s)

    async def start_admin(*_: Any, **__: Any) -> Admin:
        return Admin()

    monkeypatch.setattr("assay_stream.kafka.connection.start_admin", start_admin)
    monkeypatch.setattr(publishing, "ObservationPublisher", Publisher)
    with pytest.raises(OperatingError, match="not_delivered: 1 of 1"):
        Deciding(reason="r", author="a").decide((POLICY_SET_TYPE, POLICY))


def test_a_decision_on_an_unknown_server_needs_to_be_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A slip of the pen would otherwise protect nothing. A file is written without asking any broker."""
    delivered: list[Any] = []
    monkeypatch.setattr(decisions, "known_bindings", lambda *_: a_state())
    monkeypatch.setattr(decisions, "deliver", lambda observations, *_: delivered.extend(observations))
    with pytest.raises(InputError, match=r"server_not_known.*--new"):
        DecidingOnServer(reason="r", author="a").decide((POLICY_SET_TYPE, POLICY))
    assert not delivered
    DecidingOnServer(reason="r", author="a", new=True).decide((POLICY_SET_TYPE, POLICY))
    DecidingOnServer(reason="r", author="a", output=tmp_path / "o").decide((POLICY_SET_TYPE, POLICY))
    DecidingOnServer(reason="r", author="a").decide((POLICY_SET_TYPE, POLICY | {"server_id": facts.SERVER}))
    assert len(delivered) == 3


def test_a_rule_that_is_not_set_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its server has is named: the rule of one server is none of another, and none of every server."""
    delivered: list[Any] = []
    log = [
        *(("files", "suppression.set", name) for name in ("titles", "gone", "titles")),
        *(("files", "suppression.remove", "gone"), ("*", "suppression.set", "all")),
    ]
    records = [
        Record(Role.CONTROL, Origin("c", 0, number), server.encode(), a_control(kind, server_id=server, id=name))
        for number, (server, kind, name) in enumerate(log)
    ]
    records.append(Record(Role.CONTROL, Origin("c", 0, len(log)), b"files", b"no event"))

    async def read(_: Settings, role: Role) -> AsyncIterator[Record]:
        for record in records if role is Role.CONTROL else ():
            yield record

    monkeypatch.setattr(decisions, "read_records", read)
    monkeypatch.setattr(decisions, "on_kafka", lambda settings, work: asyncio.run(work(settings)))
    monkeypatch.setattr(decisions, "known_bindings", lambda *_: a_state())
    monkeypatch.setattr(decisions, "deliver", lambda observations, *_: delivered.extend(observations))
    assert decisions.known_rules("files", None) == {"titles"}
    by = DecidingOnServer(reason="r", author="a")
    for rule_id in ("titles", "typo"):
        with pytest.raises(InputError, match=rf"rule_not_known.*no rule {rule_id}, only all: .*--new"):
            unsuppress("*", rule_id, by)
    assert not delivered
    unsuppress("*", "all", by)
    unsuppress("*", "x", DecidingOnServer(reason="r", author="a", new=True))
    assert len(delivered) == 2


def test_a_decision_on_an_unknown_tool_needs_to_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one on an unknown server. A pin may be imported before its tool is seen."""
    delivered: list[Any] = []
    monkeypatch.setattr(decisions, "known_bindings", lambda *_: a_state())
    monkeypatch.setattr(decisions, "deliver", lambda observations, *_: delivered.extend(observations))
    by, policy = DecidingOnServer(reason="r", author="a"), POLICY | {"server_id": facts.SERVER}
    with pytest.raises(InputError, match=r"tool_not_observed.*typo.*--new"):
        by.decide((POLICY_SET_TYPE, policy | {"tool_name": "typo"}))
    assert not delivered
    by.decide((POLICY_SET_TYPE, policy | {"tool_name": "t"}))
    by.decide((POLICY_SET_TYPE, policy | {"tool_name": "gone"}))  # pinned, and in no list
    pin = {"server_id": facts.SERVER, "tool_name": "later", "scheme": "assay.v1", "value": "sha256:" + "0" * 64}
    by.decide((PIN_SET_TYPE, pin))
    DecidingOnServer(reason="r", author="a", new=True).decide((POLICY_SET_TYPE, policy | {"tool_name": "typo"}))
    assert len(delivered) == 4
