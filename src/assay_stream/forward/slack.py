"""Slack, by incoming webhooks.

It gets ``plain_text``; in the fallback text ``& < >`` are escaped and parsing is off.
"""

import json
from typing import Any

from assay_stream.alerts.formats import view_of
from assay_stream.forward.posting import HttpAnswer, MessageService, by_status, one_line, one_of_each
from assay_stream.forward.receivers import AttemptResult, waiting
from assay_stream.text.escaping import json_text

_UNITS_MAX = 3_000
"""A text object (docs.slack.dev, "Text object")."""
_ABOUT_THE_HOOK = (
    b"action_prohibited", b"channel_", b"invalid_token", b"no_active_hooks", b"no_service", b"no_team",
    b"posting_to_general_channel_denied", b"team_disabled", b"user_not_found",
)  # fmt: skip
"""How answers begin that are about the webhook, its channel or its workspace. Slack gives some of them with 400, the
status of ``invalid_payload`` too (Slack, "Improving error conditions for Incoming Webhooks", 2016-05-17; the others
from published clients)."""


class Slack(MessageService):
    def write(self, alert: dict[str, Any]) -> str:
        return json_text(to_slack(alert))

    @staticmethod
    def judge(answer: HttpAnswer) -> AttemptResult:
        """Judge an answer: 400 is also what a webhook whose user is gone gets."""
        if answer.status == 400 and answer.body.startswith(_ABOUT_THE_HOOK):
            return waiting("webhook_refused")
        return by_status(answer)


def to_slack(alert: dict[str, Any]) -> str:
    view = view_of(alert)
    line = one_line(view, _UNITS_MAX)
    detail = one_of_each(view)
    payload = {
        "text": line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
        "mrkdwn": False,
        "parse": "none",
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [
            {"type": "section", "text": {"type": "plain_text", "emoji": False, "text": text}} for text in (line, detail)
        ],
    }
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
