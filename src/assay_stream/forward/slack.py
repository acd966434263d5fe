"""Slack: an incoming webhook."""

from assay_stream.alerts.formats.messages import to_slack
from assay_stream.forward.delivery import AttemptResult
from assay_stream.forward.posting import HttpAnswer, MessageService, by_status, waiting
from assay_stream.forward.receivers import Entry, Plugin, Receiver, Writer
from assay_stream.text.escaping import json_text

_ABOUT_THE_HOOK = (
    b"action_prohibited", b"channel_", b"invalid_token", b"no_active_hooks", b"no_service", b"no_team",
    b"posting_to_general_channel_denied", b"team_disabled", b"user_not_found",
)  # fmt: skip
"""How answers begin that are about the webhook, its channel or its workspace. Slack gives some of them with 400, the
status of ``invalid_payload`` too (Slack, "Improving error conditions for Incoming Webhooks", 2016-05-17; the others
from published clients)."""


def by_slack(answer: HttpAnswer) -> AttemptResult:
    """Judge an answer of Slack: 400 is also what a webhook whose user is gone gets."""
    if answer.status == 400 and answer.body.startswith(_ABOUT_THE_HOOK):
        return waiting("webhook_refused")
    return by_status(answer)


def _make(entry: Entry) -> tuple[Receiver, Writer]:
    url = entry.safe_url(entry.secret("url_file"))
    receiver = MessageService(entry.label, url, judge=by_slack, **entry.connection())
    return receiver, lambda alert: json_text(to_slack(alert))


PLUGIN = Plugin(make=_make, fields=frozenset({"url_file"}), required=frozenset({"url_file"}), is_for_people=True)
