"""Stand-ins for the services that take alerts: each speaks its service's protocol, and can be down, slow or unwilling.

What each asks for is from its vendor's reference: Splunk "HTTP Event Collector REST API endpoints", Slack "Sending
messages using incoming webhooks", Microsoft "Create incoming webhooks with Workflows" and the adaptive card schema,
PagerDuty "Events API v2 overview".
"""

# ruff: noqa: ARG002 - every service is asked the same way

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, dict[str, str], bytes]


class Service:
    """Takes posts while its ``with`` block runs; may be entered again, on the same port.

    Args:
        answers: what it answers first, in turn, instead of judging a post.
    """

    def __init__(self, port: int, *answers: Answer) -> None:
        self.port = port
        self.base = f"http://127.0.0.1:{port}"
        self.taken: list[dict[str, Any]] = []
        self.answers = list(answers)
        self.requests = 0

    def judge(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Answer a post as the service does."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests += 1
                headers = {name.lower(): text for name, text in self.headers.items()}
                status, more, answer = outer.answers.pop(0) if outer.answers else outer.judge(self.path, headers, body)
                self.send_response(status)
                for name, text in more.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Splunk(Service):
    """HEC with indexer acknowledgement: an event is indexed when it was asked for ``asks`` times."""

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
            asked = json.loads(body)["acks"]
            for number in asked:
                self._asked[number] += 1
            return _told(200, acks={str(number): self._asked[number] >= self.asks for number in asked})
        if parts.path != "/services/collector/event":
            return _told(404, text="not found", code=404)
        event = json.loads(body)
        if "event" not in event:
            return _told(400, text="Event field is required", code=12)
        if not event.keys() <= {"time", "host", "source", "sourcetype", "index", "fields", "event"}:
            return _told(400, text="Invalid data format", code=6)
        if event.get("index") == "nowhere":
            return _told(400, text="Incorrect index", code=7)
        self.taken.append(event)
        number = len(self.taken) - 1
        self._asked[number] = 0
        return _told(200, text="Success", code=0, **({"ackId": number} if self.acknowledging else {}))


class Slack(Service):
    """An incoming webhook: ``ok``, or an error as text."""

    path = "/services/T000/B000/hidden-slack"

    @property
    def url(self) -> str:
        return self.base + self.path

    def judge(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if path != self.path:
            return 404, {}, b"no_service"
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
    """The webhook of a workflow: 202, or 400 for what is no message with adaptive cards; 28 KB at most."""

    path = "/workflows/1/triggers/manual/paths/invoke?sig=hidden-teams"

    @property
    def url(self) -> str:
        return self.base + self.path

    def judge(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if path != self.path:
            return _told(401, error={"code": "DirectApiAuthorizationRequired"})
        if len(body) > 28 * 1_024:
            return _told(413)
        payload = json.loads(body)
        (attachment,) = payload["attachments"]
        card = attachment["content"]
        if (payload["type"], attachment["contentType"], card["type"]) != (
            "message",
            "application/vnd.microsoft.card.adaptive",
            "AdaptiveCard",
        ):
            return _told(400, error={"code": "TriggerInputSchemaMismatch"})
        self.taken.append(card)
        return 202, {}, b""


class PagerDuty(Service):
    """Events API v2, which keeps incidents by ``dedup_key``."""

    routing_key = "hidden0pagerduty0000000000000000"

    def __init__(self, port: int, *answers: Answer) -> None:
        super().__init__(port, *answers)
        self.incidents: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"{self.base}/v2/enqueue"

    def judge(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        event = json.loads(body)
        wrong = []
        if event.get("routing_key") != self.routing_key:
            wrong.append("'routing_key' is invalid")
        payload = event.get("payload", {})
        if not 1 <= len(payload.get("summary", "")) <= 1_024 or not payload.get("source"):
            wrong.append("'payload' is invalid")
        if payload.get("severity") not in ("critical", "error", "warning", "info") or len(event["dedup_key"]) > 255:
            wrong.append("'severity' or 'dedup_key' is invalid")
        if wrong or path != "/v2/enqueue":
            return _told(400, status="invalid event", message="Event object is invalid", errors=wrong)
        self.taken.append(event)
        action, key = event["event_action"], event["dedup_key"]
        if action == "trigger":
            self.incidents[key] = "triggered"
        elif key in self.incidents:
            # For an incident that is not open, PagerDuty takes the event and does nothing.
            self.incidents[key] = {"acknowledge": "acknowledged", "resolve": "resolved"}[action]
        return _told(202, status="success", message="Event processed", dedup_key=key)


def _told(code_: int, /, **members: Any) -> Answer:
    return code_, {"Content-Type": "application/json"}, json.dumps(members).encode()
