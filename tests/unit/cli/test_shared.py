"""What commands share: a first interrupt, and following a topic."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from assay_stream.cli import shared
from assay_stream.cli.shared import follow, noting_interrupts
from assay_stream.config import Settings
from assay_stream.model.record import Role
from tests.support.deployment import free_port


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_does_what_it_always_does(number: signal.Signals) -> None:
    """A command ends where it can go on; somebody who insists ends it at once."""
    died = []
    before = signal.signal(number, lambda *_: died.append(number))
    try:
        with noting_interrupts() as noted:
            os.kill(os.getpid(), number)
            assert (noted, died) == ([number], [])
            os.kill(os.getpid(), number)
            assert (noted, died) == ([number], [number])
        os.kill(os.getpid(), number)
        assert (noted, died) == ([number], [number, number])
    finally:
        signal.signal(number, before)


def test_following_says_that_the_brokers_fell_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A consumer reports nothing while they are away, and the output would look like a quiet topic."""

    class Quiet:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        async def run(self) -> None:
            await asyncio.sleep(2.5)

    def on_kafka(settings: Settings, work: Callable[[Settings], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(work(settings))

    monkeypatch.setattr(shared, "Follower", Quiet)
    monkeypatch.setattr(shared, "on_kafka", on_kafka)
    monkeypatch.setattr(shared, "SILENCE_LIMIT_S", 0.5, raising=False)
    place = f"127.0.0.1:{free_port()}"
    follow(Settings(bootstrap_servers=place), Role.ALERTS, lambda _: None, starts={0: 0})
    assert capsys.readouterr().err == f"assay-stream: no Kafka broker answers at {place}, still trying\n"
