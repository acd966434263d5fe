"""Shipped detections of behaviour: what follows a change of a definition, and who gets a tool's arguments."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import count, permutations
from typing import Any

import pytest

from assay_stream.agents import Origin
from assay_stream.agents.shipped import steered_calls_agent, taken_over_agent
from assay_stream.agents.shipped.taken_over import NEW_CALLS
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Output
from tests.support.agents import evidence, found

DAY_S = 24 * 3_600
LEVELS = {2: "low", 3: "medium", 4: "high"}
Task = Sequence[str]
"""The tools that are called one after the other, each as server/tool, with a version of its definition after an @."""


def played(*tasks: Task) -> list[Output]:
    """Calls of tasks, one task an hour; ``@`` names the definition in force."""
    return [each for number, task in enumerate(tasks) for each in calls_of(task, number)]


def calls_of(task: Task, number: int, *, order: Sequence[int] | None = None) -> Iterator[Output]:
    for place in order or range(len(task)):
        name, _, version = task[place].partition("@")
        server_id, _, tool = name.partition("/")
        binding = {"scope": "exact", "full_digest": digest_of(version or "v1")}
        data: dict[str, Any] = {"server_id": server_id, "tool": tool, "binding": binding, "trace_id": f"t{number}"}
        yield evidence(100 * number + place, 3_600 * number + 10 * place, **data)


def digest_of(text: str) -> str:
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def levels(findings: list[Finding]) -> list[tuple[str, str, str | None]]:
    return [
        (LEVELS[finding.detection.severity_id], finding.server_id, finding.tool_name)
        for finding in findings
        if finding.detection is not None
    ]


READ = ("git/log", "files/read", "files/write")
READ_2 = ("git/log", "files/read@v2", "files/write")
AFTER = ("git/log", "files/read@v2", "mail/search", "files/write")
BEFORE = ("git/log", "mail/search", "files/read@v2", "files/write")
MAIL = ("mail/search",)


@pytest.mark.parametrize("steered", [AFTER, BEFORE])
def test_a_tool_that_comes_with_a_changed_one_is_found(steered: Task) -> None:
    """After five runs, and again when it is sure; about the tool that changed, with the other one as the subject."""
    findings = found(steered_calls_agent, played(*[READ, MAIL] * 12, *[steered] * 9))
    assert levels(findings) == [("medium", "files", "read"), ("high", "files", "read")]
    assert {finding.detection and finding.detection.key for finding in findings} == {("mail", "search")}
    assert findings[0].detection is not None
    assert findings[0].detection.references == (Origin("mcp.tools.call", 0, 2_801),)


@pytest.mark.parametrize(
    "tasks",
    [
        [*[READ, MAIL] * 12, *[("git/log", "files/read", "mail/search", "files/write")] * 9],
        [*[("git/log", "files/read", "mail/search", "files/write")] * 12, *[AFTER] * 9],
        [*[READ, MAIL] * 12, *[AFTER, READ_2, READ_2] * 9],
        [*[READ, MAIL] * 12, *[("mail/search", "files/read@v2", "mail/send")] * 9],
        [*[READ, MAIL] * 9, *[AFTER] * 9],
        [*[READ, MAIL] * 12, *[READ_2] * 200, *[AFTER] * 99],
    ],
)
def test_other_company_is_no_finding(tasks: list[Task]) -> None:
    """Nothing changed, it came before too, in a third of all runs, with other work, without a habit, a week later."""
    assert found(steered_calls_agent, played(*tasks)) == []


def test_a_tool_of_the_same_server_and_one_that_is_new_are_less_sure() -> None:
    """An honest release may have a new step; so it stays at medium."""
    for other in ("files/list", "new/log"):
        steered = ("git/log", "files/read@v2", other, "files/write")
        findings = found(steered_calls_agent, played(*[READ, ("files/list",)] * 12, *[steered] * 30))
        assert levels(findings) == [("medium", "files", "read")]


@pytest.mark.parametrize("order", list(permutations(range(1, 3))))
def test_calls_on_two_servers_may_be_swapped(order: tuple[int, ...]) -> None:
    """Company has no order."""
    steered = [call for n in range(24, 33) for call in calls_of(AFTER, n, order=(0, *order, 3))]
    assert len(found(steered_calls_agent, [*played(*[READ, MAIL] * 12), *steered])) == 2


def test_many_small_changes_do_not_hide_a_large_one() -> None:
    """A definition that is in force for three runs makes no habit."""
    steered = [("git/log", f"files/read@v{n // 3 + 2}", "mail/search", "files/write") for n in range(9)]
    assert levels(found(steered_calls_agent, played(*[READ, MAIL] * 12, *steered)))[-1][0] == "high"


def test_made_up_names_push_out_those_of_their_own_server() -> None:
    """Long ones at that; the state stays within its bound, and what was usual is still known."""
    flood = [(f"evil/{n}-" + "\N{SNOWMAN}" * 900,) for n in range(200)]
    findings = found(steered_calls_agent, played(*[READ, MAIL] * 12, *flood, *[AFTER] * 9))
    assert [finding.kind for finding in findings] == [Kind.DETECTION] * 2


numbers = count()


def call(name: str, second: float, arguments: str | None, **data: Any) -> Output:
    server_id, _, tool = name.partition("/")
    data |= {} if arguments is None else {"args_hash": digest_of(arguments)}
    return evidence(next(numbers), second, server_id=server_id, tool=tool, **data)


def used(calls: int, *names: str, arguments: int = 10, at_s: float = 0) -> list[Output]:
    """Calls of tools in turn, each once a minute; all that read get the same arguments, which recur."""
    return [
        call(name, at_s + 60 * n, f"{n % arguments}{'' if name.endswith('read') else name}")
        for n in range(calls)
        for name in names
    ]


LEARNT = used(60, "files/read", "files/write")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("docs/read", "files/write"), [("medium", "docs", "read"), ("high", "docs", "read")]),
        (("docs/read",), [("low", "docs", "read")]),
        (("files/read", "docs/read"), [("medium", "docs", "read")]),
        (("docs/read", "files/read"), [("medium", "docs", "read")]),
        (("files/fast_read", "files/write"), [("low", "files", "fast_read")]),
        (("files/read", "files/fast_read"), []),
    ],
)
def test_a_new_tool_that_gets_the_arguments_of_another_is_found(
    names: tuple[str, ...], expected: list[tuple[str, str, str]]
) -> None:
    """Instead of it, with the server gone too, as copies after or before it; on the same server only instead."""
    findings = found(taken_over_agent, [*LEARNT, *used(60, *names, at_s=2 * DAY_S)])
    assert levels(findings) == expected
    assert {finding.detection and finding.detection.key for finding in findings} <= {("files", "read")}


@pytest.mark.parametrize(
    "calls",
    [
        used(60, "docs/read", at_s=10_000),
        used(60, "docs/read", arguments=3, at_s=2 * DAY_S),
        [call("docs/read", 2 * DAY_S + n, None) for n in range(60)],
        [call("docs/read", 2 * DAY_S + n, f"new-{n}") for n in range(60)],
        [call("docs/read", 2 * DAY_S + n, f"{n % 10}", decision="deny") for n in range(60)],
    ],
)
def test_other_arguments_are_no_finding(calls: list[Output]) -> None:
    """On the first day, the same three again and again, none, new ones, or refused."""
    assert found(taken_over_agent, [*LEARNT, *calls]) == []


def test_a_tool_that_was_hardly_called_is_still_new() -> None:
    """One that waits for its time since the first day, but not one that has been in use."""
    later = used(60, "docs/read", "files/write", at_s=40 * DAY_S)
    for calls, is_found in ((NEW_CALLS - 10, True), (NEW_CALLS + 10, False)):
        first = [call("docs/read", n, f"own-{n}") for n in range(calls)]
        again = used(60, "files/read", "files/write", at_s=20 * DAY_S)
        assert bool(found(taken_over_agent, [*LEARNT, *first, *again, *later])) is is_found


def test_made_up_tools_do_not_hide_one_that_is_taken_over() -> None:
    """They push out each other, and the state stays within its bound."""
    flood = [call("evil/" + "\N{SNOWMAN}" * 900 + str(n), DAY_S + 10 * n, f"{n % 30}-{n // 30}") for n in range(1_500)]
    taken = used(60, "docs/read", "files/write", at_s=2 * DAY_S)
    findings = found(taken_over_agent, [*LEARNT, *flood, *taken])
    assert {finding.kind for finding in findings} == {Kind.DETECTION}
    assert levels(findings)[-1] == ("high", "docs", "read")
