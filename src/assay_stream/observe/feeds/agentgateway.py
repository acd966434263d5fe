"""agentgateway's policy service ``ExtMcp`` (version 1.4): called before each call, and with each response and list.

Rules:

1. For a call, the gateway names one server, and the tool by that server's name. A list covers all servers, with
   a prefix before each name if there are several: `prefixes` undo it.
2. Nothing in the protocol pairs an answer with its call. A passed call carries a token (``metadata``), which comes
   back with the answer if the gateway's configuration says so: `assay_call: mcpGuardrails.assay_call`. An answer
   without one is counted, never guessed. A call whose answer does not come in time ends as ``no_response``.
3. The gateway leaves out tools that its own policies hide, and all pages but the first: no list is complete.
4. Clients are distinguished by `assay_client`, and lists by a keyed hash of `assay_context`, as far as the gateway's
   configuration sends them.
"""

from __future__ import annotations

import functools
import hmac
import math
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay_stream.limits import FEED_LIMITS
from assay_stream.observe.feeds import ext_mcp
from assay_stream.observe.feeds.feed import CALL, UNSOUND, ClientView, Feed, PendingCalls, shared_members
from assay_stream.observe.observation import Prefixes
from assay_stream.observe.wire import NOT_RULED_ON

TOKEN, CLIENT, CONTEXT = "assay_call", "assay_client", "assay_context"
"""Metadata keys sent by the gateway's configuration."""

_LIST = "tools/list"
_OF_ONE_SERVER = frozenset(("initialize", "server/discover", "prompts/list", "resources/templates/list"))
"""Methods besides tools that are observed if the gateway serves a single server."""
_HASH_CHARS = 32


@dataclass(eq=False, repr=False)
class ExtMcp:
    """Handle the hook calls of a gateway, for a ``filtered`` feed. Thread-safe."""

    feed: Feed
    prefixes: Prefixes
    servers: Mapping[str, str]
    context_key: bytes = b""
    enforces: bool = False
    monotonic_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._pending = PendingCalls(self.feed, self.monotonic_s)

    def serve(self, address: str, **tls: Any) -> Any:
        return ext_mcp.start_server(self, address, **tls)

    def check_request(self, request: Any) -> Any:
        try:
            return self._ruled(request) if request.method == CALL else ext_mcp.passed("McpRequestResult")
        except Exception as error:  # noqa: BLE001 - observing breaks no call; enforcing lets none pass unruled
            self.feed.note("failed", type(error).__name__)
            return self._unruled("not_ruled_on", NOT_RULED_ON)

    def check_response(self, response: Any) -> Any:
        try:
            if response.method == CALL:
                self._answered(response)
            elif response.method == _LIST:
                self._listed(response)
            elif response.method in _OF_ONE_SERVER and len(names := response.service_names) == 1:
                view = self._view(response, self.servers.get(names[0], names[0]))
                self.feed.answer(self.feed.ask(response.method, dict, view=view), lambda: ext_mcp.result_of(response))
        except Exception as error:  # noqa: BLE001 - what a server says must reach its client all the same
            self.feed.note("failed", type(error).__name__)
        return ext_mcp.passed("McpResponseResult")

    def _ruled(self, request: Any) -> Any:
        if len(names := request.service_names) != 1:
            self.feed.note("call_without_server", "a call names no server, or several")
            return self._unruled("call_without_server", "the call names no server, or several; it was not passed on")
        token = str(uuid.uuid4())
        asked = self.feed.ask(
            CALL,
            lambda: ext_mcp.call_of(request, strictly=self.enforces),
            view=self._view(request, self.servers.get(names[0], names[0])),
            call_id=token,
        )
        answer = ext_mcp.passed("McpRequestResult")
        if asked is None:
            return answer
        if asked.error is not None:
            # The gateway chooses the JSON-RPC error code, and forwards message and data.
            return ext_mcp.refused(ext_mcp.PERMISSION_DENIED, asked.error["message"], asked.error.get("data", {}))
        self._pending.add(token, asked)
        answer.metadata.update({TOKEN: token})
        return answer

    def _unruled(self, code: str, why: str) -> Any:
        if not self.enforces:
            return ext_mcp.passed("McpRequestResult")
        return ext_mcp.refused(ext_mcp.INVALID, f"assay-stream: {why}", {"code": code})

    def expire(self) -> None:
        self._pending.give_up(FEED_LIMITS.answer_limit_s)

    def close(self) -> None:
        self._pending.give_up(-math.inf)
        self.feed.close()

    def _answered(self, response: Any) -> None:
        token = ext_mcp.text_of(response, TOKEN)
        asked = self._pending.take(token)
        if asked is not None:
            self.feed.answer(asked, lambda: ext_mcp.result_of(response))
        elif token:
            self.feed.note(
                "unknown_call", "an answer came late, or for a call that passed another instance of this service"
            )
        else:
            self.feed.note(
                "unpaired_answer",
                f"an answer names no call: let the gateway send the metadata {TOKEN}: mcpGuardrails.{TOKEN}",
            )

    def _listed(self, response: Any) -> None:
        among = [self.servers.get(name, name) for name in response.service_names]
        shown = ext_mcp.merged_list_of(response)
        if shown is None:
            for each in among or [""]:
                view = self._view(response, each)
                self.feed.answer(self.feed.ask(_LIST, dict, view=view), lambda: {"result": UNSOUND})
            return
        parts = self.prefixes.split(shown["tools"], among=among)
        if len(among) == 1 and (not parts or (None, "") in parts):
            # The names of one server need no prefix. Where one lacks it, the others have not got it either.
            parts = {(among[0], ""): shown["tools"]}
        shared = shared_members(shown) if len(parts) > 1 else shown
        for (server_id, prefix), tools in parts.items():
            if server_id is None:
                self.feed.note("unattributed_tools", "tools fit no prefix, or several: state one for each server")
            asked = self.feed.ask(_LIST, dict, view=self._view(response, server_id, shown_prefix=prefix))
            self.feed.answer(asked, functools.partial(dict, result={**shared, "tools": tools}))

    def _view(self, message: Any, server_id: str | None, *, shown_prefix: str | None = None) -> ClientView:
        stated = ext_mcp.text_of(message, CONTEXT).encode("utf-8", "backslashreplace")
        digest = hmac.digest(self.context_key, stated, "sha256").hex()[:_HASH_CHARS]
        context = f"gateway:{digest}" if stated else None
        view = self.feed.view(ext_mcp.text_of(message, CLIENT), server_id=server_id or "", auth_context=context)
        return replace(view, shown_prefix=shown_prefix)
