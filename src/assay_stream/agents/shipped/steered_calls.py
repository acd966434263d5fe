"""Steered calls: since a tool's definition changed, another tool is called beside it that rarely was before.

Before or after makes no difference: a definition may ask for the other tool first, and calls on two servers may be
swapped. An agent that has turned to other work calls a tool in other company altogether, which is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Literal

from assay_stream.agents import Agent, Detection, Event, Evidence, Memory, Origin, actor_of, trace_of

NEAR_S = 120
"""The longest pause within company: two runs before and two after. A run is a call, or several of one tool in a row."""
HABIT_RUNS, TOGETHER_RUNS, SURE_RUNS = 10, 5, 8
"""Runs before the change that make a habit; runs with the new companion since, for medium and for high."""
RARELY, OFTEN, MOSTLY, KEPT = 0.1, 0.3, 0.5, 0.3
"""Shares of runs with a companion. The change brought one that is there mostly, with ``KEPT`` of the former company."""
WATCHED_S = 7 * 24 * 3_600
TOOLS_MAX, COMPANIONS_MAX, LATEST_MAX, RUNS_MAX, NAME_CHARS_MAX = 48, 16, 6, 256, 256

agent = Agent("steered_calls", title="A changed tool brings calls of another tool", forget_after_s=30 * 24 * 3_600)


@agent.evidence(key=actor_of)
def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
    """Count the company of each run, and compare it with the company that the tool had before its latest change."""
    data = event.value["data"]
    if data["decision"] != "allow":
        return
    # Names may be long, and a state is bounded.
    now_s, server_id, name = event.time_us // 1_000_000, data["server_id"], data["tool"][:NAME_CHARS_MAX]
    tool, trace = _id(server_id, name), _id(trace_of(event) or "")
    tools: dict[str, dict[str, Any]] = memory.state.setdefault("tools", {})
    _update(tools, tool, _id(server_id), data["binding"].get("full_digest", "")[7:23], now_s)
    latest: list[dict[str, Any]] = memory.state.setdefault("latest", [])
    near = [run for run in latest if run["trace"] == trace and abs(now_s - run["at_s"]) <= NEAR_S][-2:]
    if near and near[-1]["tool"] == tool:
        near[-1]["at_s"] = now_s
        return
    of, call = [server_id[:NAME_CHARS_MAX], name], list(event.origin)
    run: dict[str, Any] = {"at_s": now_s, "trace": trace, "tool": tool, "of": of, "call": call, "with": []}
    memory.state["latest"] = [*latest, run][-LATEST_MAX:]
    tools[tool]["now"][0] += 1
    for other in near:
        for one, beside in ((run, other), (other, run)):
            if beside["tool"] in (one["tool"], *one["with"]) or not tools.keys() >= {one["tool"], beside["tool"]}:
                continue
            one["with"].append(beside["tool"])
            if (severity := _meet(tools[one["tool"]], beside["tool"], tools[beside["tool"]])) is not None:
                (on, called), about, calls = one["of"], tuple(beside["of"]), (Origin(*other["call"]),)
                yield Detection(server_id=on, tool_name=called, severity=severity, about=about, references=calls)


def _update(tools: dict[str, dict[str, Any]], tool: str, server: str, version: str, now_s: int) -> None:
    """Note a call of a tool. If its definition has changed, what it did until then is its habit."""
    if tool not in tools and len(tools) >= TOOLS_MAX:
        # A server that makes up names pushes out its own.
        on = [known["on"] for known in tools.values()]
        del tools[min(tools, key=lambda each: (-on.count(tools[each]["on"]), tools[each]["at_s"], each))]
    empty = {"on": server, "is": version, "first_s": now_s, "before": [0, {}], "now": [0, {}], "found": {}}
    known = tools.setdefault(tool, empty)
    known |= {"at_s": now_s, "is": known["is"] or version}
    is_change = version not in ("", known["is"])
    # A definition that was hardly called makes no habit: many small changes do not hide a large one.
    if (is_change or now_s - known.get("since_s", now_s) > WATCHED_S) and known["now"][0] >= HABIT_RUNS:
        known |= {"before": known["now"], "now": [0, {}], "found": {}}
        known.pop("since_s", None)
    if is_change:
        known |= {"is": version, "since_s": now_s}
    if known["now"][0] >= RUNS_MAX:
        known["now"] = [RUNS_MAX // 2, {each: count // 2 for each, count in known["now"][1].items() if count > 1}]


def _meet(known: dict[str, Any], beside: str, other: dict[str, Any]) -> Literal["medium", "high"] | None:
    """Count a companion, and return how sure it is that the change brought it, if that is news."""
    (runs_before, before), (runs, now) = known["before"], known["now"]
    now[beside] = now.get(beside, 0) + 1
    if len(now) > COMPANIONS_MAX:
        del now[min((each for each in now if each != beside), key=lambda each: (now[each], each))]
    if "since_s" not in known or runs_before < HABIT_RUNS or now[beside] < max(TOGETHER_RUNS, MOSTLY * runs):
        return None
    new = [each for each in now if now[each] >= OFTEN * runs and before.get(each, 0) <= RARELY * runs_before]
    kept = sum(min(count / runs_before, now.get(each, 0) / max(runs, 1)) for each, count in before.items())
    if new != [beside] or kept < KEPT * sum(before.values()) / runs_before:
        return None
    others = other["before"][0] + other["now"][0] - now[beside]
    is_sure = now[beside] >= SURE_RUNS and other["on"] != known["on"]
    is_sure = is_sure and other["first_s"] < known["since_s"] and others >= HABIT_RUNS
    severity: Literal["medium", "high"] = "high" if is_sure else "medium"
    is_known = known["found"].get(beside) in (severity, "high")
    known["found"] = {beside: "high" if known["found"].get(beside) == "high" else severity}
    return None if is_known else severity


def _id(*names: str) -> str:
    return sha256("\n".join(names).encode()).hexdigest()[:12]
