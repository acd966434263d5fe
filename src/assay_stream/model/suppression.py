"""Suppression: what an operator does not want to be alerted of, for how long, and why.

A suppressed alert is still written, with its status, at the same bounded rate: readers of the topic see what
was left out and by whose word.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from assay_stream.model.fields import AgentName, Identifier, Micros, ShortText
from assay_stream.model.finding import Finding
from assay_stream.model.glob import compile_glob
from assay_stream.model.kinds import Kind
from assay_stream.model.wire import Wire

ANY_SERVER = "*"
"""As a rule's server: every server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressionRule:
    """What an operator does not want to be alerted of. What is absent applies to all.

    Args:
        id: the operator's name of the rule; setting it again replaces it.
        server_id: the server, or ``*``.
        tool: glob over tool names: ``*``, ``?`` and sets in brackets.
        field: top-level field of the definition: the rule applies where only such fields changed.
        detection: agent of the operator's own: the rule applies to what this one finds.
        until_us: event time at which it ends, microseconds since the epoch.
    """

    id: Identifier
    server_id: Identifier
    tool: ShortText | None = None
    kind: Annotated[str | None, Wire(Kind)] = None
    field: ShortText | None = None
    detection: AgentName | None = None
    until_us: Micros | None = None
    author: ShortText
    reason: ShortText

    def covers(self, finding: Finding, time_us: int) -> bool:
        """Return True if the rule applies to a finding.

        Args:
            time_us: time of the alert, microseconds since the epoch.
        """
        return (
            self.server_id in (ANY_SERVER, finding.server_id)
            and self.kind in (None, finding.kind.value)
            and (self.until_us is None or time_us < self.until_us)
            and (self.tool is None or compile_glob(self.tool).fullmatch(finding.tool_name or "") is not None)
            and self.detection in (None, finding.detection and finding.detection.agent)
            and (self.field is None or set(finding.changed_fields) == {self.field})
        )


def covering_rule(rules: Iterable[SuppressionRule], finding: Finding, time_us: int) -> SuppressionRule | None:
    """Return the rule that suppresses a finding, the first by id, ``None`` where none does."""
    return min((rule for rule in rules if rule.covers(finding, time_us)), key=lambda rule: rule.id, default=None)
