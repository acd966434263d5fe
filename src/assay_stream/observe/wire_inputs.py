"""What a server says while calls are open: requests to its client, and progress; and which call each belongs to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from assay_stream.observe.jsonrpc import RequestKey, meta_of, params_of, request_key
from assay_stream.observe.open_call import OpenCall
from assay_stream.observe.open_calls import HeldCalls, PendingCalls
from assay_stream.observe.wire import WireConnection
from assay_stream.observe.wire_tasks import related_task

_TOKEN_CHARS_MAX = 256
"""Longer progress tokens are not followed; clients count, or take UUIDs."""


class InputObserver:
    """Follows what the server asks and reports during the calls of one connection."""

    def __init__(self, wire: WireConnection, pending: PendingCalls, held: HeldCalls) -> None:
        self._wire = wire
        self._pending = pending
        self._held = held
        self._asked: OrderedDict[RequestKey, OpenCall] = OrderedDict()
        """Requests that the client has not answered."""
        self._tokens: dict[RequestKey, OpenCall] = {}

    def begin(self, call: OpenCall, params: Mapping[str, Any], exchange: int) -> None:
        """Note how reports on the progress of a request name it."""
        self.end(call)
        token = request_key(meta_of(params).get("progressToken"), exchange)
        if token is not None and len(str(token[1])) <= _TOKEN_CHARS_MAX:
            self._tokens[token], call.token = call, token

    def share(self, call: OpenCall) -> None:
        """Let progress of a call come in another exchange than its own."""
        token = call.token
        if token is not None and len(token) == 3:
            self.end(call)
            if token[:2] not in self._tokens:
                self._tokens[token[:2]], call.token = call, token[:2]

    def end(self, call: OpenCall) -> None:
        """Forget how progress of a call is named."""
        if call.token is not None and self._tokens.get(call.token) is call:
            del self._tokens[call.token]
        call.token = None

    def progress(self, params: Mapping[str, Any], exchange: int) -> None:
        """Note progress."""
        for scope in (exchange, 0):
            token = request_key(params.get("progressToken"), scope)
            if token is not None and token in self._tokens:
                self._tokens[token].progress_count += 1
                return

    def ask(self, message: Mapping[str, Any], exact: bool, exchange: int) -> None:
        """Note a request to the client."""
        id_hash = related_task(params_of(message))
        call = self._pending.only_one(exchange) if id_hash is None else self._held.get(("task", id_hash))
        if call is None:
            self._wire.stats.unlinked_requests += 1
            return
        call.inputs.ask(message, exact)
        key = request_key(message.get("id"))
        if key is not None:
            self._asked[key] = call
            if len(self._asked) > self._wire.pending_max:
                self._asked.popitem(last=False)

    def answer(self, message: Mapping[str, Any]) -> None:
        """Note the client's answer to a request."""
        key = request_key(message.get("id"))
        call = None if key is None else self._asked.pop(key, None)
        if call is not None:
            call.inputs.answer(message.get("result"))
