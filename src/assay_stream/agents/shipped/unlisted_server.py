"""A server whose tools nobody lists: what agents call there stays unbound, and no change of it can be noticed."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from assay_stream.agents import Agent, Detection, Event, Evidence, Memory

LASTS_S = 600
"""How long calls must continue without a list. Clients that list after their first call do so within seconds."""
AGAIN_S = 12 * 3_600
"""Interval between findings while it lasts: short enough for its alert to stay open."""
GROUPS = 8
SERVERS_MAX = 32
"""Servers remembered per group. Any authorised publisher can make up any number of names."""

agent = Agent(
    "unlisted_server", title="Calls on a server without a list in force", severity="low", forget_after_s=2 * AGAIN_S
)


def group_of(event: Event[Evidence]) -> str | None:
    """Return the group of a server, if the called tool was not listed by any observer."""
    if event.value["data"].get("unbound_reason") != "definition_not_observed":
        return None
    return f"group-{sha256(event.server_id.encode()).digest()[0] % GROUPS}"


@agent.evidence(key=group_of)
def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
    """Detect a server once calls continued for a while; one finding for all servers where a group has too many."""
    now_s = event.time_us // 1_000_000
    servers: dict[str, list[int]] = memory.state.setdefault("servers", {})
    for name in [name for name, times in servers.items() if now_s - times[1] > AGAIN_S]:
        del servers[name]
    name = sha256(event.server_id.encode()).hexdigest()[:16]
    if name not in servers and len(servers) >= SERVERS_MAX:
        if now_s >= memory.state.get("beyond_again_s", now_s):
            memory.state["beyond_again_s"] = now_s + AGAIN_S
            yield Detection(server_id="*")
        return
    times = servers.setdefault(name, [now_s + LASTS_S, now_s])
    due_s, times[1] = times[0], max(times[1], now_s)
    if now_s >= due_s:
        times[0] = now_s + AGAIN_S
        yield Detection()
