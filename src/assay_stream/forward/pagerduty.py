"""PagerDuty, by its Events API v2."""

from collections.abc import Mapping
from typing import Any, ClassVar

from assay_stream.alerts.formats.messages import to_pagerduty
from assay_stream.forward.posting import HttpAnswer, MessageService, by_status
from assay_stream.forward.receivers import AttemptResult, Entry, Setting, waiting
from assay_stream.text.escaping import json_text

PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"


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
