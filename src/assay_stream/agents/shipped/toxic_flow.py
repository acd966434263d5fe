"""A toxic flow: within one trace, untrusted content comes in, private data is read, and something is sent out.

None of the three is a finding alone. Together they can pass the data to the author of the content. A tool's
capabilities follow from its definition: its annotations, and words in its name. Labels of operators replace these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from assay_stream.agents import Agent, Detection, Event, Evidence, Memory, Origin, trace_of

UNTRUSTED, PRIVATE, SENDS = "untrusted", "private", "sends"
WORDS = {
    SENDS: "send post publish upload reply forward share comment tweet push webhook",
    UNTRUSTED: "fetch browse crawl scrape web url page search issue issues comments rss feed",
    PRIVATE: "file files database query sql secret secrets credential contacts calendar inbox email mail document",
}
"""Words of a tool's name that suggest a capability, where the operator gave no labels. A sending tool reads nothing."""
TOOL_CHARS_MAX = 256


def labels_of(definition: Mapping[str, Any]) -> list[str]:
    """Return a tool's capabilities, as suggested by its definition.

    ``readOnlyHint`` rules out sending, ``openWorldHint: false`` the outside world; a tool declared read-only and
    open-world reads content from unknown authors.
    """
    hints = definition.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    words = set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(definition.get("name", ""))).lower()))
    labels = {label for label, known in WORDS.items() if words & set(known.split())}
    labels = {SENDS} if SENDS in labels else labels
    if hints.get("readOnlyHint") is True:
        labels.discard(SENDS)
        if hints.get("openWorldHint") is True:
            labels.add(UNTRUSTED)
    if hints.get("openWorldHint") is False:
        labels -= {UNTRUSTED, SENDS}
    return sorted(labels)


def toxic_flow(labels: Mapping[str, Sequence[str]] | None = None) -> Agent:
    """Return the agent.

    Args:
        labels: of tools, by patterns of ``server/tool``: ``{"mail/*": ["private"]}``. The first pattern that matches
            counts, and replaces what the definition suggests; an empty list means harmless.
    """
    agent = Agent("toxic_flow", title="Untrusted content, private data and a way out in one trace", severity="high")
    agent.definitions(lambda definition: labels_of(definition) or None)

    @agent.evidence(key=trace_of)
    def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
        """Detect the call that sends out what the trace has read."""
        data = event.value["data"]
        if data["decision"] != "allow":
            return
        name = f"{data['server_id']}/{data['tool']}"
        given = next((found for pattern, found in (labels or {}).items() if fnmatchcase(name, pattern)), None)
        suggested = memory.definition(data["binding"].get("full_digest")) or []
        by_operator = memory.labels(data["server_id"], data["tool"])
        can = next((labels for labels in (by_operator, given) if labels is not None), suggested)
        # Names may be long, and a state is bounded.
        call = [event.time_us, *event.origin, data["server_id"], data["tool"][:TOOL_CHARS_MAX]]
        seen: dict[str, list[Any]] = memory.state.setdefault("seen", {})
        for label in can:
            # Calls of a trace go to several servers, so their evidence may come in another order.
            latest_or_earliest = max if label == SENDS else min
            seen[label] = latest_or_earliest(seen.get(label, call), call)
        if not seen.keys() >= {SENDS, UNTRUSTED, PRIVATE} or seen[SENDS] <= max(seen[UNTRUSTED], seen[PRIVATE]):
            return
        # Either of the two may have come first: the model remembers both.
        untrusted, private = (Origin(*seen[label][1:4]) for label in (UNTRUSTED, PRIVATE))
        *_, server_id, tool_name = seen[SENDS]
        yield Detection(
            server_id=server_id,
            tool_name=data["tool"] if seen[SENDS] == call else tool_name,
            references=(untrusted, private),
        )
        seen.clear()

    return agent


agent = toxic_flow()
