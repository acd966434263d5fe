"""Stand-ins for the services that take alerts: each speaks its service's protocol, and can be down, slow or unwilling.

What each asks for and answers is held against what is published; none was held against the service itself:

* Splunk: "Troubleshoot HTTP Event Collector" (possible error codes) and "About HTTP Event Collector Indexer
  Acknowledgment" of Splunk Enterprise 9.3, through copies of their tables in published clients. That HEC refuses
  members of the envelope that it does not know is our own strictness.
* Slack: "Improving error conditions for Incoming Webhooks" (2016-05-17) and "Text object" (docs.slack.dev).
* Teams: the payload of "Sending messages to connectors and webhooks" (MicrosoftDocs/msteams-docs at 0166903a), the
  limit of 28 KB of the Teams connector's reference. Answers of workflows are from what clients report.
* PagerDuty: docs/events-API-v2/01-Overview.md and 02-Trigger-Events.md (PagerDuty/developer-docs at 1da9f6a2). The
  answers to a wrong routing key are from what clients report (robusta-dev/robusta#571).
"""

# ruff: noqa: ARG002 - every service is asked the same way

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.receivers import Answer, HttpReceiver


class Service(HttpReceiver):
    """A receiver that judges each post as its service does.

    Args:
        answers: what it answers first, in turn, instead of judging a post.
    """

    def __init__(self, port: int, *answers: Answer) -> None:
        super().__init__(port)
        self.taken: list[dict[str, Any]] = []
        self.answers = list(answers)
        self.requests = 0

    def judge(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        raise NotImplementedError

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        self.requests += 1
        return self.answers.pop(0) if self.answers else self.judge(path, headers, body)


class Splunk(Service):
    """HEC with indexer acknowledgement: an event is indexed when it was asked for ``asks`` times.

    What was told to be indexed is forgotten; of what it does not know it says that it is not indexed.
    """

    token = "00000000-0000-0000-0000-00000000000a"

    def __init__(self, port: int, *answers: Answer, asks: int = 1, acknowledging: bool = True) -> None:
        super().__init__(port, *answers)
        self.asks = asks
        self.acknowledging = acknowledging
        self._asked: dict[int, int] = {}

    def judge(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if headers.get("authorization") != f"Splunk {self.token}":
            return _told(403, text="Invalid token", code=4)
        parts = urlsplit(path)
        channel = headers.get("x-splunk-request-channel", "")
        if self.acknowledging and not re.fullmatch(r"[0-9a-f-]{36}", channel):
            return _told(400, text="Data channel is missing", code=10)
        if parts.path == "/services/collector/ack":
            if parse_qs(parts.query).get("channel") != [channel]:
                return _told(400, text="Invalid data channel", code=11)
            if not self.acknowledging:
                return _told(400, text="ACK is disabled", code=14)
            return _told(200, acks={str(number): self._is_indexed(number) for number in json.loads(body)["acks"]})
        if parts.path != "/services/collector/event":
            return _told(404, text="The requested URL was not found on this server.", code=404)
        event = json.loads(body)
        if "event" not in event:
            return _told(400, text="Event field is required", code=12)
        if not event["event"]:
            return _told(400, text="Event field cannot be blank", code=13)
        if not re.fullmatch(r"[0-9]+\.[0-9]{3}", event.get("time", "0.000")):
            return _told(400, text="Error in handling indexed fields", code=15)
        if not event.keys() <= {"time", "host", "source", "sourcetype", "index", "fields", "event"}:
            return _told(400, text="Invalid data format", code=6)
        if event.get("index") == "nowhere":
            return _told(400, text="Incorrect index", code=7)
        self.taken.append(event)
        number = len(self.taken) - 1
        self._asked[number] = 0
        return _told(200, text="Success", code=0, **({"ackId": number} if self.acknowledging else {}))

    def _is_indexed(self, number: int) -> bool:
        if number not in self._asked:
            return False
        self._asked[number] += 1
        return self._asked[number] >= self.asks and self._asked.pop(number) > 0


class Slack(Service):
    path = "/services/T000/B000/hidden-slack"
    user_gone = False

    @property
    def url(self) -> str:
        return self.base + self.path

    def judge(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if path != self.path:
            return 404, {}, b"no_service"
        if self.user_gone:
            return 400, {}, b"user_not_found"
        try:
            payload = json.loads(body)
            texts = [block["text"]["text"] for block in payload["blocks"]]
            good = headers["content-type"] == "application/json" and payload["text"] and max(map(len, texts)) <= 3_000
        except (ValueError, KeyError):
            good = False
        if not good:
            return 400, {}, b"invalid_payload"
        self.taken.append(payload)
        return 200, {}, b"ok"


class Teams(Service):
    """The webhook of a workflow: 202 for what it takes, which it posts later; what is over 28 KB never appears."""

    path = "/workflows/1/triggers/manual/paths/invoke?sig=hidden-teams"
    is_on = True

    @property
    def url(self) -> str:
        return self.base + self.path

    def judge(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if path != self.path:
            return _told(401, error={"code": "DirectApiAuthorizationRequired"})
        if not self.is_on:
            return _told(400, error={"code": "WorkflowTriggerIsNotEnabled"})
        payload = json.loads(body)
        (attachment,) = payload["attachments"]
        card = attachment["content"]
        kinds = payload["type"], attachment["contentType"], card["type"]
        if kinds != ("message", "application/vnd.microsoft.card.adaptive", "AdaptiveCard"):
            return _told(400, error={"code": "TriggerInputSchemaMismatch"})
        if len(body) <= 28 * 1_024:
            self.taken.append(card)
        return 202, {}, b""


class PagerDuty(Service):
    routing_key = "hidden0pagerduty0000000000000000"

    def __init__(self, port: int, *answers: Answer) -> None:
        super().__init__(port, *answers)
        self.incidents: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"{self.base}/v2/enqueue"

    def judge(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if len(body) > 512 * 1_024:
            return _told(413)
        event = json.loads(body)
        key = event.get("routing_key", "")
        if len(key) == len(self.routing_key) and key != self.routing_key:
            return 400, {}, b"Invalid routing key"
        wrong = [] if key == self.routing_key else ["Length of 'routing_key' is incorrect (should be 32 characters)"]
        payload = event.get("payload", {})
        if not 1 <= len(payload.get("summary", "")) <= 1_024 or not payload.get("source"):
            wrong.append("'payload' is invalid")
        if payload.get("severity") not in ("critical", "error", "warning", "info") or len(event["dedup_key"]) > 255:
            wrong.append("'severity' or 'dedup_key' is invalid")
        if wrong or path != "/v2/enqueue":
            return _told(400, status="invalid event", message="Event object is invalid", errors=wrong)
        self.taken.append(event)
        action, key = event["event_action"], event["dedup_key"]
        state = self.incidents.get(key)
        if action == "trigger":
            # An acknowledged incident stays so, and notifies nobody; a resolved one is followed by a new one.
            self.incidents[key] = "acknowledged" if state == "acknowledged" else "triggered"
        elif state in ("triggered", "acknowledged"):
            # For an incident that is not open, PagerDuty takes the event and does nothing.
            self.incidents[key] = {"acknowledge": "acknowledged", "resolve": "resolved"}[action]
        return _told(202, status="success", message="Event processed", dedup_key=key)


def _told(code_: int, /, **members: Any) -> Answer:
    return code_, {"Content-Type": "application/json"}, json.dumps(members).encode()
