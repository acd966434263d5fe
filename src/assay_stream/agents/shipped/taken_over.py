"""A tool taken over: one that is new to an agent gets the very arguments that it passes, or passed, to another tool.

Digests of whole arguments are equal if all names and values are. On one server that is an upgrade at most. On another
one it is a copy of the tool that agents prefer, or a tool that asks for a copy of everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Literal

from assay_stream.agents import Agent, Detection, Event, Evidence, Memory, actor_of
from assay_stream.canonical.digest import PREFIX

SHARED = 4
"""Different arguments that both tools got."""
LEFT = 0.5
"""Share of the calls to be expected of the older tool, ``SHARED`` or more, up to which it counts as given up."""
IN_USE = 3
"""Calls of other tools of the older one's server by which that is still in use. Otherwise the agent may have moved."""
LEARNING_S, NEW_S, NEW_CALLS = 24 * 3_600, 14 * 24 * 3_600, 20
"""A tool is new for two weeks, unless it was used on the agent's first day, and while it was hardly called."""
NO_ARGUMENTS = ("", sha256(b"{}").hexdigest()[:8])
TOOLS_MAX, ARGUMENTS_MAX, PAIRS_MAX, NAME_CHARS_MAX = 48, 24, 8, 64
LEVELS: tuple[Literal["low", "medium", "high"], ...] = ("low", "medium", "high")

agent = Agent("taken_over", title="A new tool gets the arguments of another tool", forget_after_s=30 * 24 * 3_600)


@agent.evidence(key=actor_of)
def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
    """Compare the arguments with those that other tools got, where one of the two tools is new."""
    data = event.value["data"]
    if data["decision"] != "allow":
        return
    now_s, server_id, name = event.time_us // 1_000_000, data["server_id"], data["tool"]
    tools: dict[str, dict[str, Any]] = memory.state.setdefault("tools", {})
    learnt_s = memory.state.setdefault("learnt_s", now_s + LEARNING_S)
    key = _id(server_id, name)
    if key not in tools:
        if len(tools) >= TOOLS_MAX:
            # A server that makes up names pushes out its own.
            servers = [tool["on"] for tool in tools.values()]
            del tools[min(tools, key=lambda each: (-servers.count(tools[each]["on"]), tools[each]["at_s"], each))]
        # Names may be long, and a state is bounded.
        names = [server_id[:NAME_CHARS_MAX], name[:NAME_CHARS_MAX]]
        first_s = now_s if now_s > learnt_s else 0
        tools[key] = {"is": names, "on": _id(server_id), "first_s": first_s, "calls": 0, "got": [], "pairs": {}}
    args_hash = data.get("args_hash") or ""
    # A keyed digest does not say whether there were any arguments, and calls without them are alike everywhere.
    tool, got = tools[key], "" if args_hash.startswith(PREFIX) else args_hash.removeprefix("sha256:")[:8]
    tool |= {"at_s": now_s, "calls": tool["calls"] + 1}
    if got in NO_ARGUMENTS or got in tool["got"]:
        return
    tool["got"] = [*tool["got"], got][-ARGUMENTS_MAX:]
    for each in [each for each in tools if each != key and got in tools[each]["got"] and now_s > learnt_s]:
        new, old = sorted((key, each), key=lambda one: (-tools[one]["first_s"], tools[one]["calls"], one))
        level = _pair(tools, new, old, now_s)
        if level is not None:
            on, called = (server_id, name) if new == key else tools[new]["is"]
            yield Detection(server_id=on, tool_name=called, severity=LEVELS[level], about=tuple(tools[old]["is"]))


def _pair(tools: dict[str, dict[str, Any]], new: str, old: str, now_s: int) -> int | None:
    """Count arguments that both tools got; return the level of what that says, if it is news."""
    tool, older = tools[new], tools[old]
    if (now_s - tool["first_s"] > NEW_S and tool["calls"] > NEW_CALLS) or older["calls"] < SHARED:
        return None
    calls = sum(each["calls"] for each in tools.values())
    others = sum(each["calls"] for each in tools.values() if each["on"] == older["on"] and each is not older)
    pairs: dict[str, list[int]] = tool["pairs"]
    if old not in pairs and len(pairs) >= PAIRS_MAX:
        del pairs[min(pairs, key=lambda each: (pairs[each][0], each))]
    pair = pairs.setdefault(old, [0, older["calls"], others, calls, -1])
    pair[0] += 1
    expected = (calls - pair[3]) * pair[1] / pair[3]
    is_left = expected >= SHARED and older["calls"] - pair[1] <= LEFT * expected
    is_in_use, is_called = others - pair[2] >= IN_USE, older["calls"] > pair[1]
    level = 2 if is_left and is_in_use else 1 if is_in_use or is_called else 0
    if tool["on"] == older["on"]:
        level = 0 if is_left else -1
    # Tools of one server may take the same arguments: the one that shares most is the one that is followed.
    if pair[0] < max(SHARED, *(count for one, (count, *_) in pairs.items() if one in tools)) or level <= pair[4]:
        return None
    pair[4] = level
    return level


def _id(*names: str) -> str:
    return sha256("\n".join(names).encode()).hexdigest()[:12]
