"""Every kind of finding, as data: what it means, how grave it is by itself, and what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What was found. ``KINDS`` says what each means."""

    TOOL_ADDED = "tool_added"
    TOOL_REMOVED = "tool_removed"
    TOOL_CHANGED = "tool_changed"
    TOOL_RENAMED = "tool_renamed"
    TOOL_SHADOWED = "tool_shadowed"
    PROMPT_ADDED = "prompt_added"
    PROMPT_REMOVED = "prompt_removed"
    PROMPT_CHANGED = "prompt_changed"
    TEMPLATE_ADDED = "template_added"
    TEMPLATE_REMOVED = "template_removed"
    TEMPLATE_CHANGED = "template_changed"
    RISK_LEVEL_CHANGED = "risk_level_changed"
    DEFINITION_AMBIGUOUS = "definition_ambiguous"
    CONTRACT_VIOLATION = "contract_violation"
    SIGNATURE_INVALID = "signature_invalid"
    SIGNATURE_MISSING = "signature_missing"
    KEY_CHANGED = "key_changed"
    KEY_REVOKED = "key_revoked"
    PIN_MISMATCH = "pin_mismatch"
    UNPINNED_TOOL = "unpinned_tool"
    CALL_TO_UNLISTED_TOOL = "call_to_unlisted_tool"
    BLOCKED_TOOL_CALLED = "blocked_tool_called"
    SNAPSHOT_REJECTED = "snapshot_rejected"
    SNAPSHOT_LATE = "snapshot_late"
    LIST_CHANGE_UNANSWERED = "list_change_unanswered"
    SERVER_MISROUTED = "server_misrouted"
    ALERTS_FOLDED = "alerts_folded"
    LISTS_NEVER_COMPLETE = "lists_never_complete"
    RECORD_SET_ASIDE = "record_set_aside"
    ANALYSIS_CUT_SHORT = "analysis_cut_short"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindInfo:
    """How a kind of finding reads to an analyst.

    Args:
        title: one line, without names.
        severity_id: OCSF severity where nothing more is known of the change, 1 informational to 5 critical.
        explanation: why it deserves attention.
        next_step: what to do about it.
        atlas: MITRE ATLAS techniques that show themselves so.
        owasp: entries of the OWASP MCP Top 10 and of the OWASP Agentic list.
        lasts: whether it stands until something puts an end to it; what does not last is over when it is not found
            again for a while.
    """

    title: str
    severity_id: int
    explanation: str
    next_step: str
    atlas: tuple[str, ...] = ()
    owasp: tuple[str, ...] = ()
    lasts: bool = True


_POISONING = ("AML.T0110",)
_RUG_PULL = ("AML.T0109", "AML.T0110")
_TOOLS = ("MCP03", "ASI02")
_SUPPLY = ("MCP04", "ASI04")

KINDS: dict[Kind, KindInfo] = {
    Kind.TOOL_ADDED: KindInfo(
        title="A server offers a tool it did not offer before",
        severity_id=3,
        explanation="A new tool widens what agents can be made to do.",
        next_step="Read its definition, then pin it (pins approve) or reject it.",
        atlas=_POISONING,
        owasp=(*_TOOLS, "MCP09"),
    ),
    Kind.TOOL_REMOVED: KindInfo(
        title="A server no longer offers a tool",
        severity_id=1,
        explanation="A complete list lacks a tool that was there before.",
        next_step="Nothing, unless another tool took its place: see the same server's other alerts.",
        lasts=False,
    ),
    Kind.TOOL_CHANGED: KindInfo(
        title="The definition of a tool changed",
        severity_id=4,
        explanation="Agents read the definition as instructions.",
        next_step="Compare both versions (alerts show), then approve or reject the new one.",
        atlas=_RUG_PULL,
        owasp=(*_TOOLS, *_SUPPLY),
    ),
    Kind.TOOL_RENAMED: KindInfo(
        title="A tool came back under another name",
        severity_id=3,
        explanation="A new name with the old schema escapes whatever is kept by name: pins, policies, approvals.",
        next_step="Compare both, move the pin if the change is wanted, and reject it if not.",
        atlas=_RUG_PULL,
        owasp=(*_TOOLS, *_SUPPLY),
    ),
    Kind.TOOL_SHADOWED: KindInfo(
        title="A server offers a tool whose name looks like one of another server",
        severity_id=4,
        explanation="An agent that uses both servers may call the wrong one.",
        next_step="Find out whose name it is, and take the other server out of use until it is renamed.",
        atlas=_POISONING,
        owasp=(*_TOOLS, "MCP09"),
    ),
    Kind.PROMPT_ADDED: KindInfo(
        title="A server offers a prompt it did not offer before",
        severity_id=2,
        explanation="Prompts are instructions that a person may send to an agent.",
        next_step="Read it.",
        owasp=_TOOLS,
        lasts=False,
    ),
    Kind.PROMPT_REMOVED: KindInfo(
        title="A server no longer offers a prompt",
        severity_id=1,
        explanation="A complete list lacks a prompt that was there before.",
        next_step="Nothing, unless people relied on it.",
        lasts=False,
    ),
    Kind.PROMPT_CHANGED: KindInfo(
        title="A prompt changed",
        severity_id=2,
        explanation="Prompts are instructions that a person may send to an agent.",
        next_step="Compare both versions.",
        atlas=_RUG_PULL,
        owasp=_TOOLS,
        lasts=False,
    ),
    Kind.TEMPLATE_ADDED: KindInfo(
        title="A server offers a resource template it did not offer before",
        severity_id=2,
        explanation="A template says what an agent may read from the server.",
        next_step="Read it.",
        owasp=_TOOLS,
        lasts=False,
    ),
    Kind.TEMPLATE_REMOVED: KindInfo(
        title="A server no longer offers a resource template",
        severity_id=1,
        explanation="A complete list lacks a template that was there before.",
        next_step="Nothing, unless agents relied on it.",
        lasts=False,
    ),
    Kind.TEMPLATE_CHANGED: KindInfo(
        title="A resource template changed",
        severity_id=2,
        explanation="A template says what an agent may read from the server.",
        next_step="Compare both versions.",
        atlas=_RUG_PULL,
        owasp=_TOOLS,
        lasts=False,
    ),
    Kind.RISK_LEVEL_CHANGED: KindInfo(
        title="The risk level of a tool rose",
        severity_id=3,
        explanation="Words for execution, deletion or secrets entered the name or the description.",
        next_step="Read what was added.",
        owasp=_TOOLS,
    ),
    Kind.DEFINITION_AMBIGUOUS: KindInfo(
        title="A list holds one tool name twice, with different definitions",
        severity_id=4,
        explanation="Which definition an agent sees is up to its client. No digest is attached to its calls.",
        next_step="Take the server out of use until its list is mended.",
        atlas=_POISONING,
        owasp=_TOOLS,
    ),
    Kind.CONTRACT_VIOLATION: KindInfo(
        title="A tool changed what it may do without a new major version",
        severity_id=4,
        explanation="Side effects and required capabilities are a promise that only a major version may change.",
        next_step="Treat the tool as a new one: review it before it is used again.",
        atlas=_RUG_PULL,
        owasp=(*_TOOLS, *_SUPPLY),
    ),
    Kind.SIGNATURE_INVALID: KindInfo(
        title="A tool's signature does not hold",
        severity_id=4,
        explanation="The definition is not what the holder of the domain's key signed, or the key cannot be told.",
        next_step="Ask the tool's developer by another way than the server.",
        atlas=_RUG_PULL,
        owasp=_SUPPLY,
    ),
    Kind.SIGNATURE_MISSING: KindInfo(
        title="A tool that came signed before comes without a signature",
        severity_id=4,
        explanation="Whoever changes a signed definition must drop its signature.",
        next_step="Ask the tool's developer by another way than the server.",
        atlas=_RUG_PULL,
        owasp=_SUPPLY,
    ),
    Kind.KEY_CHANGED: KindInfo(
        title="A tool is signed with another key than the one it is pinned to",
        severity_id=5,
        explanation="A new key counts only after an operator accepts it.",
        next_step="Ask the tool's developer by another way; then keys accept, or keys revoke.",
        atlas=_RUG_PULL,
        owasp=_SUPPLY,
    ),
    Kind.KEY_REVOKED: KindInfo(
        title="A tool is signed with a revoked key",
        severity_id=5,
        explanation="Its developer or an operator took the key back.",
        next_step="Do not rely on anything that this key signed; ask for a definition under a new one.",
        atlas=_RUG_PULL,
        owasp=_SUPPLY,
    ),
    Kind.PIN_MISMATCH: KindInfo(
        title="A tool's definition differs from its pin",
        severity_id=5,
        explanation="The definition in force is not the one an operator pinned, or it is one that was rejected.",
        next_step="Compare them (pins diff), then approve the new definition or take the server out of use.",
        atlas=_RUG_PULL,
        owasp=(*_TOOLS, *_SUPPLY),
    ),
    Kind.UNPINNED_TOOL: KindInfo(
        title="A tool has no pin, and the policy asks for one",
        severity_id=3,
        explanation="Nobody has decided on this definition.",
        next_step="Review it, then approve or reject it.",
        owasp=(*_TOOLS, "MCP09"),
    ),
    Kind.CALL_TO_UNLISTED_TOOL: KindInfo(
        title="An agent called a tool that the server does not list",
        severity_id=4,
        explanation="The catalogue in force is complete and lacks the tool.",
        next_step="Find out where the agent has the name from.",
        owasp=("MCP08", "MCP09", "ASI02"),
        lasts=False,
    ),
    Kind.BLOCKED_TOOL_CALLED: KindInfo(
        title="A call was allowed that the policy would have blocked",
        severity_id=5,
        explanation="The proxy let the call through.",
        next_step="Have the proxy enforce the verdict topic (tap --enforce), and look at what the call did.",
        owasp=("MCP08", "ASI02"),
        lasts=False,
    ),
    Kind.SNAPSHOT_REJECTED: KindInfo(
        title="A server's tool list could not be accepted",
        severity_id=4,
        explanation="Calls to the server stay unbound until the next good list.",
        next_step="Read the original in the rejected topic; its headers say why it was refused.",
        owasp=("MCP08",),
    ),
    Kind.SNAPSHOT_LATE: KindInfo(
        title="A list arrived after calls that it would have bound otherwise",
        severity_id=2,
        explanation="The evidence of those calls rests on what was known when they were joined.",
        next_step="Look at the proxy's clock and connection; a replay shows what would have been bound.",
        owasp=("MCP08",),
        lasts=False,
    ),
    Kind.LIST_CHANGE_UNANSWERED: KindInfo(
        title="A server announced a change of its tools, and no list followed",
        severity_id=3,
        explanation="Calls since carry no digest: which definitions the server obeys now is not known.",
        next_step="Have the client list the tools again. If it does, the server is avoiding digests: take it out "
        "of use.",
        owasp=("MCP08",),
        lasts=False,
    ),
    Kind.SERVER_MISROUTED: KindInfo(
        title="Records of a server stand in a partition that is not its own",
        severity_id=2,
        explanation="A producer partitions otherwise than murmur2 of server_id. Order between its records and "
        "others' is not kept.",
        next_step="Set the producer's partitioner.",
        lasts=False,
    ),
    Kind.ALERTS_FOLDED: KindInfo(
        title="One record led to more alerts than are written one by one",
        severity_id=3,
        explanation="The first alerts of each severity stand beside this one, which counts the rest. A flood may "
        "be meant to have something else overlooked.",
        next_step="Read the gravest first; approve or reject the whole list where one change explains it.",
        owasp=(*_TOOLS, "MCP09"),
    ),
    Kind.RECORD_SET_ASIDE: KindInfo(
        title="A record was set aside because it kept ending its worker",
        severity_id=4,
        explanation="Workers crashed, ran out of memory or hung while they worked on it. It was not analysed.",
        next_step="Read the original in the rejected topic, on a machine that may crash, and report it.",
        owasp=("MCP08",),
        lasts=False,
    ),
    Kind.ANALYSIS_CUT_SHORT: KindInfo(
        title="A server's list was not analysed in full",
        severity_id=4,
        explanation="It took more work than a record, or its server, is allowed. The list is in force and bound; "
        "what mcp_left_out names was not looked for; what mcp_counted counts was not reported one by one.",
        next_step="Compare the definitions yourself (drift, pins diff), and find out why they are so expensive.",
        owasp=("MCP08",),
        lasts=False,
    ),
    Kind.LISTS_NEVER_COMPLETE: KindInfo(
        title="A server's lists are never complete",
        severity_id=3,
        explanation="What a server takes away from lists that are never complete is never found, and neither are "
        "calls to tools that it does not list.",
        next_step="Find out whether the client stops at the first page or the server never ends its list.",
        owasp=("MCP08",),
    ),
}
