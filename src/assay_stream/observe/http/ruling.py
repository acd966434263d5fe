"""What an enforcing tap does with each exchange: it rules on requests before they pass, and reads responses before.

A thread for each server does so, in order. If it fails on a request, the request is held back; if it fails on a
response, the failure is counted, the bytes pass (not through a tap that hides tools), and the server's tools are in
doubt until the next whole list.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from assay_stream.observe.http.connections import Ending, Exchange
from assay_stream.observe.http.headers import HeaderFields, is_event_stream
from assay_stream.observe.http.proxy import Eyes, Refusal
from assay_stream.observe.http.traffic import Traffic
from assay_stream.observe.observation import Observation
from assay_stream.observe.wire import Shown

if TYPE_CHECKING:
    from assay_stream.observe.gate import Passage

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


class HttpEnforcer:
    """Rules on the exchanges of all servers of a tap, and publishes what they yield.

    Args:
        traffic: of every server, by its path, with gates.
        publish: gets every observation, in the thread that saw it.
    """

    def __init__(
        self, traffic: Mapping[str, Traffic], *, publish: Callable[[Observation], object], clock: Callable[[], datetime]
    ) -> None:
        self.failures = 0
        self.blocked = 0
        self.withheld = 0
        self._threads: Mapping[Traffic, ThreadPoolExecutor] = {
            each: ThreadPoolExecutor(1, "assay-stream rule") for each in traffic.values()
        }
        self._traffic = traffic
        self._publish = publish
        self._clock = clock
        self._numbers = itertools.count(1)

    def opened(self, path: str, method: str, fields: HeaderFields) -> Ruled:
        return Ruled(self, self._traffic[path], next(self._numbers), method, fields)

    def finish(self) -> None:
        """Publish the calls that will never be answered, once everything else was inspected."""
        for traffic, thread in self._threads.items():
            self.inspect(traffic, traffic.close)
            thread.shutdown()

    def run(self, traffic: Traffic, step: Callable[[datetime], Result]) -> Future[Result]:
        return self._threads[traffic].submit(lambda: step(self._clock()))

    def inspect(
        self, traffic: Traffic, step: Callable[[datetime], list[Observation]], failed: Callable[[], None] | None = None
    ) -> Future[bool]:
        """Run a step that yields observations, and tell whether it succeeded; ``failed`` follows if it raises."""

        def guarded(at: datetime) -> bool:
            try:
                self.hand_on(step(at))
            except Exception:  # noqa: BLE001 - what the server says must reach its client all the same
                self.note_failure()
                if failed is not None:
                    failed()
                return False
            return True

        return self.run(traffic, guarded)

    def hand_on(self, observations: Iterable[Observation]) -> None:
        for observation in observations:
            self._publish(observation)

    def note_failure(self) -> None:
        """Count a failure; the first one is logged."""
        self.failures += 1
        if self.failures == 1:
            _log.exception("inspecting a message failed; further failures are only counted")


class Ruled(Eyes):
    """One exchange that is ruled on."""

    rules = True

    def __init__(
        self, enforcer: HttpEnforcer, traffic: Traffic, number: int, method: str, fields: HeaderFields
    ) -> None:
        self.hides = traffic.hides
        self._holds_back = False
        self._held = b""
        self._gives_list = False
        self._enforcer = enforcer
        self._traffic = traffic
        self._fields = fields
        self._exchange: Exchange | None = None

        def begin(at: datetime) -> list[Observation]:
            self._exchange, observations = traffic.open(number, method, fields, at)
            return observations

        enforcer.inspect(traffic, begin)

    async def rule(self, body: bytes) -> Refusal | None:
        passage = await asyncio.wrap_future(self._enforcer.run(self._traffic, lambda at: self._passage(body, at)))
        if passage is not None and passage.forward:
            for name in passage.warnings:
                _log.warning("the digest policy warns of a call that passed: %r", name)
            return None
        self._enforcer.blocked += 1
        return Refusal(500, b"") if passage is None else _refusal(passage)

    def answered(self, status: int, fields: HeaderFields) -> None:
        # A body that is one message must be read to its end before its end passes.
        self._holds_back = not is_event_stream(fields)
        self._inspect(lambda exchange, at: self._traffic.answered(exchange, status, fields, at))

    async def from_server(self, data: bytes | None) -> bytes:
        passing = await self._show(lambda exchange, at: self._traffic.shown(exchange, data, at), data or b"")
        if self._holds_back:
            passing, self._held = self._held, passing
        return passing

    async def whole(self, body: bytes) -> bytes:
        return await self._show(lambda exchange, at: [self._traffic.shown_whole(exchange, body, at)], body)

    def passed(self) -> None:
        if self._gives_list:
            self._gives_list = False
            self._inspect(lambda exchange, _: exchange.gate.offered.delivered(exchange.number))

    def closed(self, ending: Ending) -> None:
        self._inspect(lambda exchange, at: self._traffic.closed(exchange, ending, at))

    async def _show(self, step: Callable[[Exchange, datetime], list[Shown]], data: bytes) -> bytes:
        shown: list[Shown] = []

        def look(exchange: Exchange, at: datetime) -> list[Observation]:
            shown.extend(step(exchange, at))
            self._gives_list = exchange.gate.offered.awaits_delivery(exchange.number)
            return [observation for each in shown for observation in each.observations]

        inspected = await asyncio.wrap_future(self._inspect(look))
        self._enforcer.withheld += sum(each.is_withheld for each in shown)
        for each in shown:
            if each.hidden:
                _log.warning("the digest policy hides tools from a list: %s", each.hidden_text)
        if self.hides:
            return b"".join(each.text for each in shown) if inspected else b""
        return data

    def _inspect(self, step: Callable[[Exchange, datetime], list[Observation] | None]) -> Future[bool]:
        def doubt() -> None:
            # Anyone can have a request refused.
            if self._exchange is not None and not self._exchange.is_refused:
                self._exchange.gate.offered.doubt()

        def look(at: datetime) -> list[Observation]:
            return [] if self._exchange is None else step(self._exchange, at) or []

        return self._enforcer.inspect(self._traffic, look, doubt)

    def _passage(self, body: bytes, at: datetime) -> Passage | None:
        if self._exchange is None:
            return None  # it could not be opened
        try:
            passage = self._traffic.rule(self._exchange, body, self._fields, at)
        except Exception:  # noqa: BLE001 - a call that could not be ruled on does not pass
            self._enforcer.note_failure()
            try:
                passage = self._exchange.gate.not_ruled_on(body, at)
            except Exception:  # noqa: BLE001 - nor does one that cannot even be answered by its id
                return None
        self._enforcer.hand_on(passage.observations)
        return passage


def _refusal(passage: Passage) -> Refusal:
    """Return the answer to a request that does not pass: by its id, or, if nothing in it asks for one, as accepted."""
    if passage.is_bad_request:
        return Refusal(400, passage.reply)
    return Refusal(200 if passage.reply else 202, passage.reply)
