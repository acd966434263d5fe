"""Receivers that are services: Splunk HEC, Slack, Microsoft Teams, PagerDuty.

1. Only an answer about the alert itself is a refusal for good. A token, channel, index, workflow or address that is
   not good says nothing about the alert: it waits until somebody mends that.
2. 429 and 5xx wait, at least as long as ``Retry-After`` says.
3. With Splunk's indexer acknowledgement on, an alert counts as delivered once it is indexed.
"""

import asyncio
import json
import ssl
from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

from assay_stream.alerts.formats import AlertView
from assay_stream.forward.delivery import DELIVERED, AttemptResult, DeliveryOutcome
from assay_stream.forward.posting import HttpAnswer, Poster
from assay_stream.limits.serving import FORWARD_LIMITS

_ABOUT_THE_ALERT = frozenset({400, 413, 422})
_BAD_REQUEST = 400
_HEC_ABOUT_THE_ALERT = frozenset({6, 12, 13, 15})
"""Codes of HEC's answers: invalid data format, event field missing or blank, bad indexed fields (Splunk Enterprise,
"Troubleshoot HTTP Event Collector", possible error codes)."""

_SLACK_ABOUT_THE_HOOK = (
    b"action_prohibited", b"channel_", b"invalid_token", b"no_active_hooks", b"no_service", b"no_team",
    b"posting_to_general_channel_denied", b"team_disabled", b"user_not_found",
)  # fmt: skip
"""How answers begin that are about the webhook, its channel or its workspace. Slack gives some of them with 400, the
status of ``invalid_payload`` too (Slack, "Improving error conditions for Incoming Webhooks", 2016-05-17; the others
from published clients)."""

Judge = Callable[[HttpAnswer], AttemptResult]


def by_status(answer: HttpAnswer) -> AttemptResult:
    """Judge an answer by its status: what is not about the alert is waited for."""
    if answer.result.outcome is DeliveryOutcome.REFUSED and answer.status not in _ABOUT_THE_ALERT:
        return _waiting(answer.result.code)
    return answer.result


def by_slack(answer: HttpAnswer) -> AttemptResult:
    """Judge an answer of Slack: 400 is also what a webhook whose user is gone gets."""
    if answer.status == _BAD_REQUEST and answer.body.startswith(_SLACK_ABOUT_THE_HOOK):
        return _waiting("webhook_refused")
    return by_status(answer)


def by_teams(answer: HttpAnswer) -> AttemptResult:
    """Judge an answer of a workflow of Teams.

    With 400 it says that it is off or deleted (``WorkflowTriggerIsNotEnabled``) or asks for another schema: every card
    of ours has the same. The connectors that came before workflows say 200 to what they have not posted, with the
    reason in the body (Microsoft, "Sending messages to connectors and webhooks").
    """
    if answer.status == _BAD_REQUEST:
        return _waiting("workflow_refused")
    if b"endpoint returned HTTP error" in answer.body:
        return _waiting("not_posted")
    return by_status(answer)


def by_pagerduty(answer: HttpAnswer) -> AttemptResult:
    """Judge an answer of PagerDuty: 400 is also what a wrong routing key gets.

    One of a wrong length is named in the errors of a JSON object (``'routing_key'``), one that nobody has as text
    (``Invalid routing key``).
    """
    if answer.status == _BAD_REQUEST and b"routing key" in answer.body.lower().replace(b"_", b" "):
        return _waiting("routing_key_refused")
    return by_status(answer)


class MessageService:
    """Posts every alert to one address, as it was written for it.

    Args:
        name: what it is called in logs; the address may be a secret.
        judge: what an answer says about the alert.
    """

    def __init__(self, name: str, url: str, *, timeout_s: float, tls: ssl.SSLContext | bool, judge: Judge) -> None:
        self.name = name
        self._url = url
        self._judge = judge
        self._poster = Poster(headers={"Content-Type": "application/json"}, timeout_s=timeout_s, tls=tls)

    async def send(self, view: AlertView, body: str) -> AttemptResult:
        return self._judge(await self._poster.post(self._url, body.encode("utf-8")))

    async def close(self) -> None:
        await self._poster.close()


class SplunkHec:
    """Sends events to one HTTP Event Collector.

    Args:
        url: its base address, as ``https://splunk.example.com:8088``.
        token: its token: a secret.
    """

    def __init__(self, name: str, url: str, *, token: str, timeout_s: float, tls: ssl.SSLContext | bool) -> None:
        self.name = name
        self._base = url.rstrip("/") + "/services/collector"
        # A channel is what acknowledgements are asked for by; one for the life of this process.
        self._channel = str(uuid4())
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Splunk {token}",
            "X-Splunk-Request-Channel": self._channel,
        }
        self._poster = Poster(headers=headers, timeout_s=timeout_s, tls=tls)
        self._unindexed: tuple[str, int, int] | None = None
        """An event that was not indexed in time: its text, its number, and how often it was waited for."""

    async def send(self, view: AlertView, body: str) -> AttemptResult:
        if self._unindexed is not None and self._unindexed[0] == body:
            return await self._indexed(*self._unindexed)
        answer = await self._poster.post(f"{self._base}/event", body.encode("utf-8"))
        told = _members(answer.body)
        code = told.get("code")
        if answer.status == _BAD_REQUEST and code not in _HEC_ABOUT_THE_ALERT:
            return _waiting(f"hec_{code}" if isinstance(code, int) else "http_400")
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
        return _waiting("not_acknowledged")

    async def _polled(self, number: int) -> AttemptResult | None:
        question = json.dumps({"acks": [number]}).encode()
        for _ in range(FORWARD_LIMITS.acknowledgement_polls_max):
            answer = await self._poster.post(f"{self._base}/ack?channel={self._channel}", question)
            if answer.result.outcome is not DeliveryOutcome.DELIVERED:
                return _waiting(answer.result.code)
            acks = _members(answer.body).get("acks")
            if isinstance(acks, dict) and acks.get(str(number)) is True:
                return DELIVERED
            await asyncio.sleep(FORWARD_LIMITS.acknowledgement_pause_s)
        return None

    async def close(self) -> None:
        await self._poster.close()


def _members(body: bytes) -> dict[str, object]:
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _waiting(code: str) -> AttemptResult:
    return AttemptResult(outcome=DeliveryOutcome.UNAVAILABLE, code=code)
