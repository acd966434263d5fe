"""Microsoft Teams, by the webhook of a workflow.

It gets text runs, which do not support Markdown (Adaptive Cards, "TextRun"), and a card without entities, without which
there are no mentions.
"""

import json
from typing import Any

from assay_stream.alerts.formats import view_of
from assay_stream.forward.posting import HttpAnswer, MessageService, by_status, one_line, one_of_each
from assay_stream.forward.receivers import AttemptResult, waiting
from assay_stream.text.escaping import json_text

_UNITS_MAX = 4_000
"""A message to Teams has 28 KB in all (Microsoft, reference of the Teams connector, "Message size limit"): two texts
of 12 KB at most, and the card around them."""


class Teams(MessageService):
    def write(self, alert: dict[str, Any]) -> str:
        return json_text(to_teams(alert))

    @staticmethod
    def judge(answer: HttpAnswer) -> AttemptResult:
        """Judge an answer of a workflow.

        With 400 it says that it is off or deleted (``WorkflowTriggerIsNotEnabled``) or asks for another schema: every
        card of ours has the same. The connectors that came before workflows say 200 to what they have not posted, with
        the reason in the body (Microsoft, "Sending messages to connectors and webhooks").
        """
        if answer.status == 400:
            return waiting("workflow_refused")
        if b"endpoint returned HTTP error" in answer.body:
            return waiting("not_posted")
        return by_status(answer)


def to_teams(alert: dict[str, Any]) -> str:
    """Return the alert as an adaptive card, as the webhook of a Teams workflow expects it."""
    view = view_of(alert)
    runs = [
        {"type": "TextRun", "text": one_line(view, _UNITS_MAX), "weight": "Bolder"},
        {"type": "TextRun", "text": one_of_each(view)},
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "RichTextBlock", "inlines": [run]} for run in runs],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return json.dumps({"type": "message", "attachments": [attachment]}, ensure_ascii=False, separators=(",", ":"))
