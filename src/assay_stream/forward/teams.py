"""Microsoft Teams, by the webhook of a workflow."""

from typing import Any

from assay_stream.alerts.formats.messages import to_teams
from assay_stream.forward.posting import HttpAnswer, MessageService, by_status
from assay_stream.forward.receivers import AttemptResult, waiting
from assay_stream.text.escaping import json_text


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
