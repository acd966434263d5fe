"""Splunk: HTTP Event Collector. With indexer acknowledgement on, an alert counts as delivered once it is indexed."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar
from uuid import uuid4

from assay_stream.alerts.formats import AlertView
from assay_stream.alerts.formats.jsonl import to_hec
from assay_stream.forward.posting import HttpReceiver, Poster, by_status
from assay_stream.forward.receivers import DELIVERED, AttemptResult, DeliveryOutcome, Entry, Setting, waiting
from assay_stream.limits import FORWARD_LIMITS
from assay_stream.text.escaping import json_text

_BAD_REQUEST = 400
_ABOUT_THE_ALERT = frozenset({6, 12, 13, 15})
"""Codes of HEC's answers: invalid data format, event field missing or blank, bad indexed fields (Splunk Enterprise,
"Troubleshoot HTTP Event Collector", possible error codes)."""


class SplunkHec(HttpReceiver):
    settings: ClassVar[Mapping[str, Setting]] = {
        "url": Setting("base address of the collector, `https://HOST:8088`", is_required=True),
        "token_file": Setting("file that holds the token", is_required=True),
        "index": Setting("index of the events"),
        "sourcetype": Setting("their sourcetype, in place of `mcp:jsonrpc`"),
    }

    def __init__(self, entry: Entry) -> None:
        url, token = entry.safe_url(entry["url"]), entry.secret("token_file")
        if "?" in url or "#" in url or "/services/collector" in url:
            raise entry.refuse("url is the collector's base address, https://HOST:8088: the rest is added")
        if not (token.isascii() and token.isprintable()):
            raise entry.refuse("the token must be one line of ASCII")
        self.name = entry.label
        self._base = url.rstrip("/") + "/services/collector"
        self._metadata = {name: entry[name] for name in ("index", "sourcetype") if name in entry}
        # A channel is what acknowledgements are asked for by; one for the life of this process.
        self._channel = str(uuid4())
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Splunk {token}",
            "X-Splunk-Request-Channel": self._channel,
        }
        self._poster = Poster(headers=headers, **entry.connection())
        self._unindexed: tuple[str, int, int] | None = None
        """An event that was not indexed in time: its text, its number, and how often it was waited for."""

    def write(self, alert: dict[str, Any]) -> str:
        return json_text(to_hec(alert, **self._metadata))

    async def send(self, view: AlertView, body: str) -> AttemptResult:
        if self._unindexed is not None and self._unindexed[0] == body:
            return await self._indexed(*self._unindexed)
        answer = await self._poster.post(f"{self._base}/event", body.encode("utf-8"))
        told = _members(answer.body)
        code = told.get("code")
        if answer.status == _BAD_REQUEST and code not in _ABOUT_THE_ALERT:
            return waiting(f"hec_{code}" if isinstance(code, int) else "http_400")
        number = told.get("ackId")
        if answer.result.outcome is DeliveryOutcome.DELIVERED and isinstance(number, int):
            return await self._indexed(body, number, 0)
        return by_status(answer)

    async def _indexed(self, body: str, number: int, waits: int) -> AttemptResult:
        """Ask until the event is indexed; one that is not in time is asked for again before it is sent again.

        Otherwise an indexer that takes longer than one wait would be sent the same alert for ever.
        """
        self._unindexed = None
        with suppress(TimeoutError):
            async with asyncio.timeout(FORWARD_LIMITS.acknowledgement_wait_s):
                result = await self._polled(number)
                if result is not None:
                    return result
        if waits + 1 < FORWARD_LIMITS.acknowledgement_waits_max:
            self._unindexed = body, number, waits + 1
        return waiting("not_acknowledged")

    async def _polled(self, number: int) -> AttemptResult | None:
        question = json.dumps({"acks": [number]}).encode()
        for _ in range(FORWARD_LIMITS.acknowledgement_polls_max):
            answer = await self._poster.post(f"{self._base}/ack?channel={self._channel}", question)
            if answer.result.outcome is not DeliveryOutcome.DELIVERED:
                return waiting(answer.result.code)
            acks = _members(answer.body).get("acks")
            if isinstance(acks, dict) and acks.get(str(number)) is True:
                return DELIVERED
            await asyncio.sleep(FORWARD_LIMITS.acknowledgement_pause_s)
        return None


def _members(body: bytes) -> dict[str, object]:
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
