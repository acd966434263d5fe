"""PagerDuty: Events API v2."""

from assay_stream.alerts.formats.messages import to_pagerduty
from assay_stream.forward.delivery import AttemptResult
from assay_stream.forward.posting import HttpAnswer, MessageService, by_status, waiting
from assay_stream.forward.receivers import Entry, Plugin, Receiver, Writer
from assay_stream.text.escaping import json_text

URL = "https://events.pagerduty.com/v2/enqueue"


def by_pagerduty(answer: HttpAnswer) -> AttemptResult:
    """Judge an answer of PagerDuty: 400 is also what a wrong routing key gets.

    One of a wrong length is named in the errors of a JSON object (``'routing_key'``), one that nobody has as text
    (``Invalid routing key``).
    """
    if answer.status == 400 and b"routing key" in answer.body.lower().replace(b"_", b" "):
        return waiting("routing_key_refused")
    return by_status(answer)


def _make(entry: Entry) -> tuple[Receiver, Writer]:
    url, key = entry.safe_url(entry.get("url", URL)), entry.secret("routing_key_file")
    receiver = MessageService(entry.label, url, judge=by_pagerduty, **entry.connection())
    return receiver, lambda alert: json_text(to_pagerduty(alert, routing_key=key))


PLUGIN = Plugin(
    make=_make,
    fields=frozenset({"url", "routing_key_file"}),
    required=frozenset({"routing_key_file"}),
    is_for_people=True,
)
