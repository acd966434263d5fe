"""Services that people read: Slack (incoming webhooks), Microsoft Teams (workflows), PagerDuty (Events API v2)."""

from collections.abc import Callable
from typing import Any

from assay_stream.alerts.formats.messages import to_pagerduty, to_slack, to_teams
from assay_stream.forward.posting import HttpAnswer, MessageService, by_status
from assay_stream.forward.receivers import AttemptResult, Entry, Plugin, Receiver, Writer, waiting
from assay_stream.text.escaping import json_text

PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
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


def by_teams(answer: HttpAnswer) -> AttemptResult:
    """Judge an answer of a workflow of Teams.

    With 400 it says that it is off or deleted (``WorkflowTriggerIsNotEnabled``) or asks for another schema: every card
    of ours has the same. The connectors that came before workflows say 200 to what they have not posted, with the
    reason in the body (Microsoft, "Sending messages to connectors and webhooks").
    """
    if answer.status == 400:
        return waiting("workflow_refused")
    if b"endpoint returned HTTP error" in answer.body:
        return waiting("not_posted")
    return by_status(answer)


def by_pagerduty(answer: HttpAnswer) -> AttemptResult:
    """Judge an answer of PagerDuty: 400 is also what a wrong routing key gets.

    One of a wrong length is named in the errors of a JSON object (``'routing_key'``), one that nobody has as text
    (``Invalid routing key``).
    """
    if answer.status == 400 and b"routing key" in answer.body.lower().replace(b"_", b" "):
        return waiting("routing_key_refused")
    return by_status(answer)


def _hooked(judge: Callable[[HttpAnswer], AttemptResult], write: Callable[[dict[str, Any]], str]) -> Plugin:
    def make(entry: Entry) -> tuple[Receiver, Writer]:
        url = entry.safe_url(entry.secret("url_file"))
        receiver = MessageService(entry.label, url, judge=judge, **entry.connection())
        return receiver, lambda alert: json_text(write(alert))

    return Plugin(make=make, fields=frozenset({"url_file"}), required=frozenset({"url_file"}), is_for_people=True)


def _make_pagerduty(entry: Entry) -> tuple[Receiver, Writer]:
    url, key = entry.safe_url(entry.get("url", PAGERDUTY_URL)), entry.secret("routing_key_file")
    receiver = MessageService(entry.label, url, judge=by_pagerduty, **entry.connection())
    return receiver, lambda alert: json_text(to_pagerduty(alert, routing_key=key))


SLACK = _hooked(by_slack, to_slack)
TEAMS = _hooked(by_teams, to_teams)
PAGERDUTY = Plugin(
    make=_make_pagerduty,
    fields=frozenset({"url", "routing_key_file"}),
    required=frozenset({"routing_key_file"}),
    is_for_people=True,
)
