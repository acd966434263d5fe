"""The client that follows the verdict topic."""

import logging
import threading
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from assay_stream.errors import IntegrityError
from assay_stream.observe import VerdictClient, verdicts as module
from assay_stream.registry.step import verdict_key
from assay_stream.schemes.hangar import Action
from tests.support.gates import SERVER, a_table, a_tool, a_verdict

GOOD, EVIL = a_tool(), a_tool(description="Other.")
NOWHERE = {"bootstrap_servers": "127.0.0.1:1"}


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def a_client(**options: Any) -> VerdictClient:
    return VerdictClient(NOWHERE, monotonic_s=options.pop("clock", time.monotonic), **options)


@pytest.mark.parametrize("unavailable", Action)
def test_while_nothing_was_read_the_operators_choice_is_the_ruling(unavailable: Action) -> None:
    """And the reason says so. It needs no thread and no broker."""
    ruling = a_client(unavailable=unavailable).rule("s", "t")
    assert (ruling.action, ruling.reason_code, ruling.result) == (unavailable, "verdicts_unavailable", None)


def test_blocking_is_the_default() -> None:
    """Who enforces does not want to be talked out of it by an outage."""
    assert a_client().rule("s", "t").action is Action.BLOCK


def test_the_age_counts_from_the_beginning_while_no_broker_answered() -> None:
    clock = Clock()
    client = a_client(clock=clock)
    clock.now_s += 7.5
    assert client.age_s == 7.5


def test_a_client_that_was_never_started_closes() -> None:
    client = a_client()
    assert not client.wait_ready(0)
    client.close()


def test_without_a_broker_it_complains_once_and_closes_in_time(caplog: pytest.LogCaptureFixture) -> None:
    """It tries for ever, in a thread of its own; starting twice makes one."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    client = a_client()
    client.start()
    client.start()
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("assay-stream verdicts") == 1
    assert not client.wait_ready(1.0)
    started_s = time.monotonic()
    client.close()
    logging.getLogger("aiokafka").setLevel(logging.NOTSET)
    assert time.monotonic() - started_s < 4
    ours = [record for record in caplog.records if record.name == module.__name__]
    assert len(ours) == 1
    assert "broker_unreachable: no broker answers" in ours[0].getMessage()


class Broken:
    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.done = threading.Event()

    async def start(self) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.done.set()
        raise OSError

    async def stop(self) -> None: ...


def test_the_last_verdicts_stand_whatever_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Foreign records are named each time, other failures once."""
    monkeypatch.setattr(module, "_BACKOFF_MAX_S", 0.0)
    foreign = IntegrityError("foreign_verdict", "not ours")
    client, broken = a_client(), Broken(OSError(), ValueError(), foreign, foreign)
    monkeypatch.setattr(client, "_consumer", lambda: broken)
    client._pause_s = 0.0
    client._table = a_table(t=a_verdict(unknown="block"))
    client.start()
    assert broken.done.wait(5)
    assert client.rule(SERVER, "t").action is Action.BLOCK
    client.close()
    assert [record.getMessage().split(": ", 1)[1] for record in caplog.records] == [
        "broker_unreachable: no broker answers. Start it, or correct the address of the brokers",
        "foreign_verdict: not ours",
        "foreign_verdict: not ours",
    ]


class Topic:
    """A consumer of verdicts for these servers, in one partition."""

    def __init__(self, *server_ids: str) -> None:
        messages = [SimpleNamespace(key=verdict_key(name, "t"), value=a_verdict()) for name in server_ids]
        self._unread, self._end = [messages], len(messages)
        self.read_to_end = threading.Event()

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def assign(self, _: object) -> None: ...

    def assignment(self) -> list[Any]:
        return []

    async def find(self, _: object) -> None: ...

    async def seek_to_beginning(self, *_: object) -> None: ...

    async def end_offsets(self, places: list[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, self._end)

    async def getmany(self, **_: object) -> dict[str, list[Any]]:
        if not self._unread:
            self.read_to_end.set()
            raise OSError
        return {"p": self._unread.pop()}

    async def position(self, _: object) -> int:
        return self._end


@pytest.mark.parametrize(
    ("known", "ending"),
    [
        ((), ""),
        (("docs", "time"), "; the closest is 'time'"),
        (tuple(f"time-{number}" for number in range(1_001)), ""),
        (("tiem",), None),
    ],
    ids=["nothing is on record", "mistyped", "more than are compared", "on record"],
)
def test_a_server_without_verdicts_is_named_once_they_are_read(
    known: tuple[str, ...], ending: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, though the topic is read again after a failure: a mistyped server id would enforce nothing, and quietly."""
    topics = [Topic(*known), Topic(*known)]
    made = iter(topics)
    client = a_client(server_ids=["tiem"])
    monkeypatch.setattr(client, "_consumer", lambda: next(made, Broken()))
    monkeypatch.setattr(client, "_partition_count", AsyncMock(return_value=1))
    monkeypatch.setattr(client, "_pause_s", 0.0)
    monkeypatch.setattr(module, "_BACKOFF_MIN_S", 0.0)
    client.start()
    assert client.wait_ready(5)
    said = [record.getMessage() for record in caplog.records if "on record" in record.getMessage()]
    wanted = f"no pin and no policy is on record for 'tiem', so no tool is refused yet{ending}"
    assert said == ([] if ending is None else [wanted])
    assert topics[-1].read_to_end.wait(5)
    client.close()
    assert sum("on record" in record.getMessage() for record in caplog.records) == len(said)
