"""A feed: the observer of a gateway's objects, with clock, lock and sink, in the gateway's own process.

Nothing here raises or waits into a call that passes: failures are counted by code, and each code is logged once. Where
a feed enforces, a call whose ruling fails does not pass.
"""

from __future__ import annotations

import functools
import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from assay_stream.errors import AssayStreamError
from assay_stream.observe.jsonrpc import BLOCKED_CODE, NOT_RULED_ON
from assay_stream.observe.objects import CALL, Asked, ClientView, ObjectObserver
from assay_stream.observe.observation import Observation, Vantage
from assay_stream.observe.sinks import Sink
from assay_stream.observe.wire import WireStats

if TYPE_CHECKING:
    from assay_stream.observe.gate import Rule
    from assay_stream.observe.prefixes import Prefixes

_log = logging.getLogger(__name__)

_NOT_RULED_ON = {"code": BLOCKED_CODE, "message": f"assay-stream: {NOT_RULED_ON}", "data": {"code": "not_ruled_on"}}


class Feed:
    """Reports what passes through one gateway. May be used from any thread.

    Args:
        server_id: the server behind the gateway, or, of several, the one of names that fit no prefix.
        observer_id: the gateway.
        sink: gets the observations, such as an ``ObservationPublisher`` that was started.
        rule: what to do with a call (``VerdictClient.rule``); without it every call passes.
        prefixes: what the gateway puts before the tools of each server.
        filtered, retrospective, server_scoped: see ``ObjectObserver``.

    Raises:
        ConfigurationError: ``bad_identifier``.
    """

    def __init__(
        self,
        server_id: str,
        observer_id: str,
        sink: Sink,
        *,
        auth_context: str | None = None,
        rule: Rule | None = None,
        prefixes: Prefixes | None = None,
        filtered: bool = False,
        retrospective: bool = False,
        server_scoped: bool = True,
        clock: Callable[[], datetime] | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        Vantage(server_id=server_id, observer_id=observer_id, auth_context=auth_context)  # says what is wrong with them
        self.failures: Counter[str] = Counter()
        """What could not be observed, by error code, or by the class of the exception where it has none."""
        self.refused = 0
        self._view = ClientView(server_id=server_id, auth_context=auth_context)
        self._sink = sink
        self._enforces = rule is not None
        self._clock = clock or functools.partial(datetime.now, UTC)
        self._lock = threading.Lock()
        self._observer = ObjectObserver(
            observer_id,
            new_id=new_id or (lambda: str(uuid.uuid4())),
            rule=rule,
            named=None if prefixes is None else lambda _, shown: prefixes.own(shown),
            filtered=filtered,
            retrospective=retrospective,
            server_scoped=server_scoped,
        )

    @property
    def stats(self) -> WireStats:
        with self._lock:
            return self._observer.stats

    def view(self, client: str = "", *, server_id: str = "", auth_context: str | None = None) -> ClientView:
        """Return the view of a client; without arguments that of all clients together."""
        own = self._view
        return ClientView(
            server_id=server_id or own.server_id, auth_context=auth_context or own.auth_context, client=client
        )

    def ask(
        self,
        method: str,
        params: Callable[[], Mapping[str, Any]],
        *,
        view: ClientView | Callable[[], ClientView] | None = None,
        at: datetime | None = None,
        call_id: str = "",
        shown_name: str | None = None,
    ) -> Asked | None:
        """Take a request of a client; ``None`` if that failed. If the result has an ``error``, it must not pass.

        Args:
            params: returns its parameters as JSON-RPC has them; what goes wrong there counts as ours.
            view: whose request it is, or what returns that; without it all clients are one.
            at: when it was made; now if not given.
            call_id: the gateway's own id of the call.
            shown_name: what the client called the tool, where the gateway itself says how the server calls it.
        """
        client, given = self._view, dict[str, Any]()
        try:
            given = dict(params())
            client = view() if callable(view) else view or client
            with self._lock:
                asked = self._observer.ask(
                    client, method, given, at or self._clock(), call_id=call_id, shown_name=shown_name
                )
        except Exception as error:  # noqa: BLE001 - no failure of the observer may reach the call
            self._note(error)
            if not self._enforces or method != CALL:
                return None
            asked = self._held_back(Asked(view=client, message={"id": None, "method": method, "params": given}))
        if asked.error is not None:
            self.refused += 1
        elif asked.warned is not None:
            _log.warning("the digest policy warns of a call that passed: %r", asked.warned)
        self._publish(asked.observations)
        return asked

    def answer(
        self, asked: Asked | None, answer: Callable[[], Mapping[str, Any]], *, at: datetime | None = None
    ) -> None:
        """Take the answer to a request.

        Args:
            answer: returns ``{"result": ...}`` as the client was given it, or ``{"error": {"code": ...}}``.
        """
        if asked is not None and asked.error is None:
            self._run(lambda: self._observer.answer(asked, answer(), at or self._clock()), doubtful=asked.view)

    def unanswered(self, asked: Asked | None, code: str, *, ok: bool | None = None, at: datetime | None = None) -> None:
        """Note that the answer to a request will not be seen; ``code`` says why, ``ok`` whether it means success."""
        if asked is not None and asked.error is None:
            self._run(lambda: self._observer.unanswered(asked, code, at or self._clock(), ok=ok))

    def changed(self, view: ClientView | None = None) -> None:
        """Note that a client was told of a change of the tools."""
        self._run(lambda: self._observer.changed(view or self._view, self._clock()))

    def close(self) -> None:
        """Report the calls that will never be answered. The sink stays open: it is its owner's to close."""
        self._run(lambda: self._observer.close(self._clock()))

    def guard(self, step: Callable[[], None]) -> None:
        """Run what a gateway's hook does besides, in the same way: a failure is counted and goes no further."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - as above
            self._note(error)

    def _held_back(self, asked: Asked) -> Asked:
        try:
            with self._lock:
                held = self._observer.not_ruled_on(asked, self._clock())
        except Exception as error:  # noqa: BLE001 - nor does a call pass that cannot even be reported
            self._note(error)
            held = asked
        return Asked(view=asked.view, message=asked.message, observations=held.observations, error=_NOT_RULED_ON)

    def _run(self, step: Callable[[], list[Observation]], *, doubtful: ClientView | None = None) -> None:
        observations: list[Observation] = []
        try:
            with self._lock:
                observations = step()
        except Exception as error:  # noqa: BLE001 - no failure of the observer may reach the gateway
            self._note(error)
            if doubtful is not None:
                with self._lock:
                    self._observer.doubt(doubtful)
        self._publish(observations)

    def _publish(self, observations: Iterable[Observation]) -> None:
        for observation in observations:
            try:
                self._sink.publish(observation)
            except Exception as error:  # noqa: BLE001 - as above; what a sink cannot take, it counts by itself
                self._note(error)

    def _note(self, error: Exception) -> None:
        code = error.code if isinstance(error, AssayStreamError) else type(error).__name__
        self.failures[code] += 1
        if self.failures[code] == 1:
            _log.warning("observing failed (%s); the gateway goes on, further ones are only counted", code)
