"""PagerDuty, by its Events API v2.

It gets no ``links``. That it shows summaries and details as plain text has not been tested.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, ClassVar

from assay_stream.alerts.formats import view_of
from assay_stream.forward.posting import FACTS, OVER, HttpAnswer, MessageService, by_status, fact_of, one_line
from assay_stream.forward.receivers import AttemptResult, Entry, Setting, waiting
from assay_stream.model.alert import Activity
from assay_stream.text.escaping import json_text
from assay_stream.text.times import time_ms_text

PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
_SUMMARY_UNITS_MAX = 1_024
_DEDUP_KEY_CHARACTERS_MAX = 255
"""``payload.summary`` and ``dedup_key`` (PagerDuty, Events API v2, "Send an Alert Event")."""

_SEVERITIES = {1: "info", 2: "info", 3: "warning", 4: "error", 5: "critical", 6: "critical"}


class PagerDuty(MessageService):
    """Opens, acknowledges and resolves the incidents of one service."""

    settings: ClassVar[Mapping[str, Setting]] = {
        "routing_key_file": Setting("file that holds the integration's routing key", is_required=True),
        "url": Setting("the address; for the EU: `https://events.eu.pagerduty.com/v2/enqueue`"),
    }

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry, entry.get("url", PAGERDUTY_URL))
        self._routing_key = entry.secret("routing_key_file")

    def write(self, alert: dict[str, Any]) -> str:
        return json_text(to_pagerduty(alert, routing_key=self._routing_key))

    @staticmethod
    def judge(answer: HttpAnswer) -> AttemptResult:
        """Judge an answer: 400 is also what a wrong routing key gets.

        One of a wrong length is named in the errors of a JSON object (``'routing_key'``), one that nobody has as text
        (``Invalid routing key``).
        """
        if answer.status == 400 and b"routing key" in answer.body.lower().replace(b"_", b" "):
            return waiting("routing_key_refused")
        return by_status(answer)


def to_pagerduty(alert: dict[str, Any], *, routing_key: str) -> str:
    """Return the alert as an event of PagerDuty's Events API v2.

    One incident for each alert, by its uid: it is resolved where the alert closes or is suppressed, acknowledged
    while the alert is acknowledged, and triggered otherwise.

    Args:
        routing_key: the integration's key: a secret.
    """
    view = view_of(alert)
    too_long = len(view.uid) > _DEDUP_KEY_CHARACTERS_MAX
    action = "acknowledge" if view.fact("mcp_acknowledged_by") else "trigger"
    if view.activity_id == Activity.CLOSE or view.status_id in OVER:
        action = "resolve"
    event = {
        "routing_key": routing_key,
        "event_action": action,
        "dedup_key": sha256(view.uid.encode()).hexdigest() if too_long else view.uid,
        "client": "assay-stream",
        "payload": {
            "summary": one_line(view, _SUMMARY_UNITS_MAX),
            "source": fact_of(view, "mcp_server_id") or "assay-stream",
            "severity": _SEVERITIES.get(view.severity_id, "warning"),
            "timestamp": time_ms_text(view.time_ms),
            "class": view.kind,
            "custom_details": {name: fact_of(view, fact) for name, fact in FACTS.items() if view.fact(fact)}
            | {"uid": view.uid, "count": view.count},
        },
    }
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))
