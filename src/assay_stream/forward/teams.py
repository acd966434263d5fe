"""Microsoft Teams: a workflow."""

from assay_stream.alerts.formats.messages import to_teams
from assay_stream.forward.delivery import AttemptResult
from assay_stream.forward.posting import HttpAnswer, MessageService, by_status, waiting
from assay_stream.forward.receivers import Entry, Plugin, Receiver, Writer
from assay_stream.text.escaping import json_text


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


def _make(entry: Entry) -> tuple[Receiver, Writer]:
    url = entry.safe_url(entry.secret("url_file"))
    receiver = MessageService(entry.label, url, judge=by_teams, **entry.connection())
    return receiver, lambda alert: json_text(to_teams(alert))


PLUGIN = Plugin(make=_make, fields=frozenset({"url_file"}), required=frozenset({"url_file"}), is_for_people=True)
