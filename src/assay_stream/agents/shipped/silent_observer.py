"""An observer that fell silent while others go on: a tap that was taken out, a gateway that no longer publishes."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from assay_stream.agents import Agent, Detection, Event, Evidence, Memory

SILENT_S = 48 * 3_600
"""The shortest silence. A clock may be ahead by a day, and must not make all others appear silent."""
PAUSES = 3
"""A silence must last this many times the observer's longest pause so far: weekends do not."""
LEARNING_S = 8 * 24 * 3_600
"""How long an observer must be known, so that a weekend is among its pauses."""
AGAIN_S = 12 * 3_600
"""Interval between findings while it lasts: short enough for its alert to stay open."""
FORGET_S = 30 * 24 * 3_600
"""After this long a silence an observer counts as retired."""
LOOK_S = 600
FOUND_MAX = 8
"""Observers found per check; further ones are found in the next."""
OBSERVERS_MAX = 128
"""Observers remembered per group. Any authorised publisher can make up any number of names."""
NAME_CHARS_MAX = 64


def silent_observer(groups: int = 1) -> Agent:
    """Return the agent.

    Args:
        groups: number of groups that observers are divided into by a digest of their names. One handles 128 observers
            and some thousand calls a second; an observer's silence is detected by the calls of others in its group.
    """
    agent = Agent(
        "silent_observer",
        title="An observer fell silent while others go on",
        severity="informational",
        forget_after_s=FORGET_S,
    )

    def group_of(event: Event[Evidence]) -> str:
        return f"group-{sha256(event.value['data']['observer_id'].encode()).digest()[0] % groups}"

    @agent.evidence(key=group_of)
    def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
        """Record the caller, and check periodically for observers that have stopped calling."""
        now_s = event.time_us // 1_000_000
        observers: dict[str, list[int]] = memory.state.setdefault("observers", {})
        name = _short(event.value["data"]["observer_id"])
        if name in observers:
            first_s, last_s, pause_s, _ = observers[name]
            observers[name] = [first_s, max(last_s, now_s), max(pause_s, now_s - last_s), 0]
        elif len(observers) < OBSERVERS_MAX or _made_room(observers):
            observers[name] = [now_s, now_s, 0, 0]
        elif now_s >= memory.state.get("beyond_again_s", now_s):
            memory.state["beyond_again_s"] = now_s + AGAIN_S
            yield Detection(server_id="*", about=("more observers than are remembered",))
        if now_s < memory.state.get("look_again_s", now_s):
            return
        memory.state["look_again_s"] = now_s + LOOK_S
        for each in [each for each, (_, last_s, *_) in observers.items() if now_s - last_s > FORGET_S]:
            del observers[each]
        silent = [each for each, times in observers.items() if _is_silent(times, now_s)]
        for each in silent[:FOUND_MAX]:
            observers[each][3] = now_s + AGAIN_S
            yield Detection(server_id="*", about=(each,))

    return agent


def _is_silent(times: list[int], now_s: int) -> bool:
    first_s, last_s, pause_s, again_s = times
    is_known = last_s - first_s >= LEARNING_S
    return is_known and now_s - last_s >= max(SILENT_S, PAUSES * pause_s) and now_s >= again_s


def _made_room(observers: dict[str, list[int]]) -> bool:
    """Drop the observer known for the shortest time, unless all are long known: names may be made up."""
    name = min(observers, key=lambda each: (observers[each][1] - observers[each][0], -observers[each][0]))
    if observers[name][1] - observers[name][0] >= LEARNING_S:
        return False
    del observers[name]
    return True


def _short(observer_id: str) -> str:
    # Names may be long, and a state is bounded.
    if len(observer_id) <= NAME_CHARS_MAX:
        return observer_id
    return f"{observer_id[:32]}… (sha256:{sha256(observer_id.encode()).hexdigest()[:16]})"


agent = silent_observer()
