"""Whatever a server says, a conversation ends with a list, or with a reason."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from hypothesis import given, strategies as st

from assay_stream.limits import LISTING_LIMITS
from assay_stream.observe import Observation, Vantage, WireObserver
from assay_stream.observe.list_transport import ListingError
from assay_stream.observe.list_watch import Conversation, Watched
from tests.support.listing import servers

REASONS = {"ended", "not_mcp", "refused", "silent", "too_much", "unreadable"}
LIMITS = replace(LISTING_LIMITS, answer_limit_s=0.01, probe_limit_s=0.01, pages_max=4)
AT = datetime(2026, 3, 1, 10, tzinfo=UTC)
[SERVER] = servers({"command": ["x"]})

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("tools", "prompts", "resourceTemplates", "nextCursor", "ttlMs", "capabilities", "supportedVersions")
MEMBERS = st.sampled_from([*NAMES, "protocolVersion", "instructions", "resources"])
VALUES = JSON | st.just({"tools": {"listChanged": True}, "prompts": {}}) | st.just(["2026-07-28"]) | st.just("2")
RESULTS = JSON | st.dictionaries(MEMBERS, VALUES, max_size=6)
METHODS = JSON | st.sampled_from(["ping", "notifications/tools/list_changed", "sampling/createMessage"])
MESSAGES = st.fixed_dictionaries(
    {}, optional={"id": JSON | st.just("ASKED"), "result": RESULTS, "error": JSON, "method": METHODS, "params": JSON}
)


class Scripted:
    def __init__(self, conversation: Conversation, answers: list[Any]) -> None:
        self.conversation = conversation
        self.answers = answers

    async def send(self, raw: bytes, *, method: str | None, version: str | None, expects_answer: bool) -> None:  # noqa: ARG002
        if not expects_answer or not self.answers:
            return
        answer = self.answers.pop(0)
        if isinstance(answer, dict):
            if answer.get("id") == "ASKED":
                answer = {**answer, "id": json.loads(raw)["id"]}
            answer = json.dumps({"jsonrpc": "2.0", **answer}).encode()
        await self.conversation.heard(answer)

    async def listen(self, version: str) -> None:
        """End at once."""

    async def close(self) -> None:
        """Do nothing."""


async def listed(answers: list[Any], scripted: type[Scripted] = Scripted) -> tuple[list[Observation], str | None]:
    published: list[Observation] = []
    numbers = count()
    vantage = Vantage(server_id="s", observer_id="lister")
    observer = WireObserver(vantage, session_id="w", new_id=lambda: f"id-{next(numbers)}")
    watched = Watched(SERVER, observer)
    conversation = Conversation(watched, publish=published.append, clock=lambda: AT, limits=LIMITS)
    conversation.transport = scripted(conversation, answers)  # type: ignore[assignment]  # a stand-in
    try:
        await conversation.list_all()
    except ListingError as error:
        return published, error.reason
    finally:
        conversation.end()
    return published, None


@given(st.lists(MESSAGES | st.binary(max_size=40) | st.none(), max_size=8))
def test_whatever_a_server_says_ends_with_a_list_or_a_reason(answers: list[Any]) -> None:
    """And at most one snapshot beside what is announced."""
    published, reason = asyncio.run(listed(answers))
    assert reason is None or reason in REASONS
    snapshots = [each for each in published if b"mcp.tools.list.observed" in each.value]
    assert len(snapshots) <= 1 + sum(b"list_changed" in each.value for each in published)


def test_a_second_answer_does_not_take_the_first_along() -> None:
    """What it says is lost, and on record as such; the list is published all the same."""
    greeting = {"supportedVersions": ["2026-07-28"], "capabilities": {}}

    class Twice(Scripted):
        async def send(self, raw: bytes, **options: Any) -> None:
            await super().send(raw, **options)
            if (asked := json.loads(raw))["method"] == "tools/list":
                second = {"jsonrpc": "2.0", "id": asked["id"], "result": {"tools": [{"name": "b"}]}}
                await self.conversation.heard(json.dumps(second).encode())

    answers = [{"id": "ASKED", "result": each} for each in (greeting, {"tools": [{"name": "a"}]})]
    published, reason = asyncio.run(listed(answers, Twice))
    listing, lost = [json.loads(each.value)["data"] for each in published]
    assert ([tool["name"] for tool in listing["tools"]], lost["lists"], reason) == (["a"], 1, None)


def test_a_time_to_live_beyond_reason_is_bounded() -> None:
    greeting = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
    answers = [{"id": "ASKED", "result": greeting}, {"id": "ASKED", "result": {"tools": [], "ttlMs": 10**400}}]
    published, reason = asyncio.run(listed(answers))
    assert (len(published), reason) == (1, None)


async def test_the_requests_of_a_batch_count_one_by_one() -> None:
    """Each would be refused by a request of ours: a megabyte would bring about tens of thousands."""
    ids = count()
    observer = WireObserver(Vantage(server_id="s", observer_id="o"), session_id="c", new_id=lambda: f"id-{next(ids)}")
    conversation = Conversation(Watched(SERVER, observer), publish=lambda _: None, clock=lambda: AT)
    requests = [{"jsonrpc": "2.0", "id": n, "method": "x"} for n in range(LISTING_LIMITS.connection_messages_max + 1)]
    with pytest.raises(ListingError, match="too_much"):
        await conversation.heard(json.dumps(requests).encode())
