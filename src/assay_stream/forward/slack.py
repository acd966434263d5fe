"""Slack, by incoming webhooks."""

from typing import Any

from assay_stream.alerts.formats.messages import to_slack
from assay_stream.forward.posting import HttpAnswer, MessageService, by_status
from assay_stream.forward.receivers import AttemptResult, waiting
from assay_stream.text.escaping import json_text

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
