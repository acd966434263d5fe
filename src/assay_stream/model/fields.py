"""Field types that records share, the codes that stand in several of them, and globs over names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, with_config
from typing_extensions import TypedDict

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.schemes.fingerprint import SCHEME_NAMES

_GLOB = re.compile(r"(?:\[!?[^\[\]!][^\[\]]*\]|[^\[\]])*+")


@lru_cache(maxsize=1_024)
def compile_glob(glob: str) -> re.Pattern[str]:
    """Compile a glob.

    Args:
        glob: ``*`` for any text, ``?`` for one character, ``[abc]`` or ``[!abc]`` for one of a set.

    Raises:
        InputError: ``bad_pattern`` for a set that is empty or not closed.
    """
    if not _GLOB.fullmatch(glob):
        raise InputError("bad_pattern", "a set in the pattern is empty, nested or not closed: write [abc]")
    return re.compile(translate(glob))


Identifier = Annotated[
    str, StringConstraints(min_length=1, max_length=DEFAULT_LIMITS.identifier_chars_max, pattern=r"\S")
]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=DEFAULT_LIMITS.identifier_chars_max)]
Prefix = Annotated[str, StringConstraints(min_length=1, max_length=DEFAULT_LIMITS.prefix_chars_max)]
ShownName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=DEFAULT_LIMITS.prefix_chars_max + DEFAULT_LIMITS.identifier_chars_max),
]
Instructions = Annotated[str, StringConstraints(max_length=DEFAULT_LIMITS.instructions_chars_max)]
HashText = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Count = Annotated[int, Field(ge=0, le=2**53)]
# An alphabet without queries and users: what is copied into evidence must not carry credentials there.
Token = Annotated[
    str, StringConstraints(min_length=1, max_length=DEFAULT_LIMITS.identifier_chars_max, pattern=r"^[A-Za-z0-9_:./-]+$")
]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=2_048, pattern=r"^[A-Za-z0-9_:./-]+$")]
UriReference = Annotated[str, StringConstraints(min_length=1, max_length=2_048)]
Timestamp = Annotated[
    str,
    StringConstraints(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$",
        max_length=40,
    ),
]
DigestText = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
KeyFingerprint = DigestText
BareHex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# A scheme can print a word (a risk level) or nothing (the hash of a schema that is not there).
SchemeValue = Annotated[str, StringConstraints(pattern=r"^((sha256:)?[0-9a-f]{64}|LOW|MEDIUM|HIGH)?$")]
Digits = Annotated[str, StringConstraints(pattern=r"^[0-9]+$")]
Base64 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]*={0,2}$")]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
SeverityId = Annotated[int, Field(ge=1, le=5)]
Micros = Annotated[int, Field(ge=0, description="Event time, microseconds since the epoch.")]
Millis = Annotated[int, Field(ge=0, description="Milliseconds since the epoch.")]
AGENT_NAME = r"^[a-z][a-z0-9_]{0,63}$"
AgentName = Annotated[str, StringConstraints(pattern=AGENT_NAME)]

if TYPE_CHECKING:
    Scheme = str
else:
    Scheme = Literal[SCHEME_NAMES]
Enforcement = Literal["audit", "warn", "block"]
Unknown = Literal["allow_degraded", "warn", "block"]
TriageAct = Literal["acknowledge", "assign", "comment", "close", "reopen"]
"""What a person does with an alert."""
NotObserved = Literal["arguments", "call_id", "decision", "outcome", "result", "result_over_limit", "start_time"]
"""What the log that a call was read from does not say; ``result_over_limit``: its result was too large for that log."""
ActionText = Literal["allow", "warn", "block"]
Completeness = Literal["complete", "partial", "unknown"]
Decision = Literal["allow", "deny", "requires_approval", "error"]


class Subject(StrEnum):
    """What a list is a list of. A server gives instructions once: they are a list of one at most."""

    TOOL = "tool"
    PROMPT = "prompt"
    TEMPLATE = "template"
    INSTRUCTIONS = "instructions"

    @property
    def plural(self) -> str:
        return self.value if self is Subject.INSTRUCTIONS else f"{self}s"

    @property
    def key(self) -> str:
        """The field by which clients request an item."""
        return {Subject.TEMPLATE: "uriTemplate", Subject.INSTRUCTIONS: "instructions"}.get(self, "name")

    def name_of(self, item: Mapping[str, Any]) -> Any:
        """Return the identity of an item within its list."""
        name = item.get(self.key)
        return self.value if self is Subject.INSTRUCTIONS and isinstance(name, str) else name


ITEM_SUBJECTS = (Subject.PROMPT, Subject.TEMPLATE, Subject.INSTRUCTIONS)
"""What a server offers beside its tools. No call is bound to any of it."""


def as_item(instructions: str) -> list[dict[str, Any]]:
    return [{"instructions": instructions}] if instructions else []


class ChangeDirection(StrEnum):
    """Which way a change goes: more is possible after it, less, or neither can be told.

    Of a schema: more or fewer values satisfy it. Of a text: words came, or words went. Of a hint: the tool claims
    to do more, or less.
    """

    WIDENS = "widens"
    NARROWS = "narrows"
    NEUTRAL = "neutral"


class LeftOut(StrEnum):
    """What was left out of an analysis: stable codes."""

    COMPARISON = "comparison"
    FINDINGS = "findings"
    HISTORY = "history"
    NAME_CLAIMS = "name_claims"
    RENAMES = "renames"
    RESOLUTIONS = "resolutions"
    SIGNATURES = "signatures"
    TEXT = "text"


class Closed(BaseModel):
    """A record that only assay-stream writes: it holds these fields and no others."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class OriginField(TypedDict):
    """Where an input record stands in its log: topic, partition and offset."""

    topic: str
    partition: Natural
    offset: Natural


@with_config(ConfigDict(strict=True, extra="forbid"))
class ScopeField(TypedDict, total=False):
    """Calls and their evidence by server, agent and event time; what is left out covers all. The end is exclusive."""

    server_id: Identifier
    agent_id: Identifier
    from_time: Timestamp
    to_time: Timestamp
