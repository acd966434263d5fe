"""What the shipped detections of behaviour find, and how often they are wrong, in calls of real servers.

A scripted client plays tasks against released servers behind `assay-stream tap`. Four weeks of fleets of eight agents
are drawn from what that recorded: each agent has a mix of tasks, and another one every other week or so. In the middle
something changes, honestly or not; agents do what an attack wants with a probability. Arguments come from ten files
and five words, so they recur; where that matters, there is also a row in which they never do.

    python -m bench.bench_behaviour [--fleets N]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from assay_stream.agents import Runner, agent_set
from assay_stream.agents.shipped import steered_calls_agent, taken_over_agent
from assay_stream.model.evidence import Producer
from assay_stream.model.finding import decode_finding
from assay_stream.model.record import TOPIC_NAMES, Origin, Record, Role
from deploy.local.servers import node_server, python_server
from tests.support.behind_tap import TappedClient
from tests.support.events import TYPES
from tests.support.replaying import replay

Call = dict[str, Any]
Step = tuple[str, str, dict[str, Any]]
"""Server, tool and arguments."""
Played = tuple[dict[str, list[dict[str, Any]]], dict[str, list[list[Call]]]]
"""What was recorded of one release of the servers: lists by server, and runs by task."""
FILES = ("plan", "notes", "readme", "budget", "ideas", "todo", "draft", "agenda", "minutes", "letter")
ZONES = ("Europe/Amsterdam", "America/New_York", "Asia/Tokyo", "UTC", "Australia/Sydney")
WORDS = ("alpha", "beta", "gamma", "delta", "omega")
RUNS, AGENTS, DAYS, CHANGE_DAY, CALLS = 25, 8, 28, 14, 10
START = datetime(2026, 3, 2, 9, tzinfo=UTC)
RELEASES = {"first": ("0.6.2", "2025.1.14"), "second": ("0.6.2", "2025.8.21"), "third": ("2026.10.19", "2026.8.31")}
"""Of the servers of time and files. In the second, `read_text_file` takes the place of `read_file`."""


def tasks(choose: random.Random, home: str, read: str) -> dict[str, list[Step]]:
    """Return a run of each task: what an agent calls, in order."""
    paths = [f"{home}/{choose.choice(FILES)}.md" for _ in range(4)]
    word, text, some, maybe = choose.choice(WORDS), f"{choose.random()}\n", choose.randint(1, 3), choose.randint(0, 1)
    count, zone, other_zone = choose.randint(1, 9), choose.choice(ZONES), choose.choice(ZONES)

    def git(tool: str, **arguments: Any) -> Step:
        return "git", tool, {"repo_path": home, **arguments}

    reads: list[Step] = [("files", read, {"path": path}) for path in paths[:some]]
    infos: list[Step] = [("files", "get_file_info", {"path": path}) for path in paths[some:]]
    write: Step = ("files", "write_file", {"path": paths[0], "content": text})
    now: Step = ("time", "get_current_time", {"timezone": zone})
    meeting = {"source_timezone": "UTC", "time": f"{count + 10}:15", "target_timezone": other_zone}
    look: Step = ("memory", "search_nodes", {"query": word})
    entity = {"name": word, "entityType": "topic", "observations": [text]}
    add: Step = ("memory", "add_observations", {"observations": [{"entityName": word, "contents": [text]}]})
    commit = [git("git_diff_unstaged"), git("git_add", files=["."]), git("git_commit", message=text)]
    return {
        "clock": [now, *[("time", "convert_time", meeting)] * maybe],
        "edit": [*reads[:1], write, *reads[:maybe]],
        "explore": [("files", "list_directory", {"path": home}), *infos, *reads],
        "search": [("files", "search_files", {"path": home, "pattern": f"{choose.choice(FILES)}*"}), *reads],
        "review": [git("git_status"), git("git_diff_unstaged"), *[git("git_log", max_count=count)] * maybe],
        "history": [git("git_log", max_count=count), *[git("git_show", revision="HEAD")] * some],
        "change": [*[git("git_status")] * maybe, *reads[:1], write, *commit],
        "recall": [look, ("memory", "open_nodes", {"names": [word]})],
        "note": [*[look] * maybe, ("memory", "create_entities", {"entities": [entity]}), add],
        "report": [*reads, now, write],
        "journal": [git("git_log", max_count=count), now, add],
    }


async def play(home: Path, time_release: str, files_release: str) -> Played:
    """Play every task some times against real servers, one call after another."""
    home.mkdir(parents=True)
    for name in FILES:
        (home / f"{name}.md").write_text(f"{name}\n" * 5, encoding="utf-8")
    for step in ("init", "config user.name script", "config user.email script@example.com", "add .", "commit -m first"):
        subprocess.run(["git", "-C", str(home), *step.split()], check=True, capture_output=True)
    files, memory = (f"@modelcontextprotocol/server-{name}" for name in ("filesystem", "memory"))
    commands = {
        "time": [*python_server("mcp-server-time", time_release), "--local-timezone", "UTC"],
        "git": python_server("mcp-server-git", "2026.10.19"),
        "files": [*node_server(files, files_release), str(home)],
        "memory": node_server(memory, "2026.8.31"),
    }
    taps, read = {}, "read_file" if files_release == RELEASES["first"][1] else "read_text_file"
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "script", "version": "1"}}
    env = os.environ | {"MEMORY_FILE_PATH": f"{home}-memory.json"}
    for name, server in commands.items():
        tap = ["-m", "assay_stream", "tap", "--server-id", name, "--output", f"{home}-{name}.ndjson", "--", *server]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *tap, stdin=PIPE, stdout=PIPE, stderr=subprocess.DEVNULL, env=env, limit=2**24
        )
        taps[name] = process, TappedClient(process)
        await taps[name][1].ask("initialize", hello)
        process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')  # type: ignore[union-attr]
        await taps[name][1].list_tools()
    asked, choose = Counter[str](), random.Random(7)
    played: dict[str, list[list[tuple[str, int]]]] = defaultdict(list)
    for _ in range(RUNS):
        for task, steps in tasks(choose, str(home), read).items():
            played[task].append([])
            for server_id, tool, arguments in steps:
                await taps[server_id][1].ask("tools/call", {"name": tool, "arguments": arguments})
                played[task][-1].append((server_id, asked[server_id]))
                asked[server_id] += 1
    lists, calls = {}, {}
    for name, (process, _) in taps.items():
        process.stdin.close()  # type: ignore[union-attr]
        await process.wait()
        events = [orjson.loads(line) for line in Path(f"{home}-{name}.ndjson").read_bytes().splitlines()]
        [lists[name]] = [event["data"]["tools"] for event in events if event["type"] == TYPES[Role.SNAPSHOTS]]
        calls[name] = [event["data"] for event in events if event["type"] == TYPES[Role.CALLS]]
    observed = {task: [[calls[on][n] for on, n in run] for run in runs] for task, runs in played.items()}
    return lists | {"docs": lists["files"]}, observed


class Change(NamedTuple):
    """What happens in the middle: a tool's definition changes, and another one is called after it or before it; or
    another tool gets what `read_text_file` got, or gets it too; or a server comes; or all agents turn to other work."""

    name: str
    releases: tuple[str, str] = ("second", "second")
    steered: tuple[str, str, str, str] | None = None
    is_before: bool = False
    reader: tuple[str, str] | None = None
    is_copy: bool = False
    late: str = ""
    all_turn: bool = False
    fresh: bool = False


LEVELS = ("", "informational", "low", "medium", "high", "critical")
NOTES, DOCS, READ = ("memory", "search_nodes"), ("docs", "read_text_file"), ("files", "read_text_file")
HONEST = (
    Change("nothing changes"),
    Change("an upgrade of two servers", ("second", "third")),
    Change("the same, and all agents turn to other work", ("second", "third"), all_turn=True),
    Change("an upgrade in which a tool replaces another", ("first", "second")),
    Change("a new server", late="memory"),
    Change("a release with a new step", steered=("git", "git_commit", "git", "git_log"), is_before=True),
)
ATTACKS = (
    Change("another server's tool, after `write_file`", steered=("files", "write_file", *NOTES)),
    Change("another server's tool, before `git_commit`", steered=("git", "git_commit", *READ), is_before=True),
    Change("another server's tool, after `get_current_time`", steered=("time", "get_current_time", *NOTES)),
    Change(
        "a tool of the same server, after `list_directory`",
        steered=("files", "list_directory", "files", "search_files"),
    ),
    Change("taken over by another server", reader=DOCS),
    Change("taken over by another server, arguments never recur", reader=DOCS, fresh=True),
    Change("copied to another server", reader=DOCS, is_copy=True),
    Change("copied to another server, arguments never recur", reader=DOCS, is_copy=True, fresh=True),
    Change("taken over by a new tool of the same server", reader=("files", "read_any")),
)


class Fleet:
    """Four weeks of eight agents."""

    def __init__(self, played: dict[str, Played], change: Change, obeys: float, seed: int) -> None:
        self._played, self._change, self._obeys, self.sessions = played, change, obeys, 0
        self._choose, self._tempted = random.Random(seed), random.Random(seed)
        self._events: list[tuple[datetime, Role, dict[str, Any]]] = []
        self._mixes = [self._mix() for _ in range(AGENTS)]
        for day in range(DAYS):
            self._day(day, START + timedelta(days=day))

    def records(self) -> Iterator[Record]:
        for number, (at, role, data) in enumerate(sorted(self._events, key=lambda row: row[0])):
            event = {"specversion": "1.0", "type": TYPES[role], "source": "urn:bench", "id": str(number), "data": data}
            value = orjson.dumps(event | {"time": at.isoformat().replace("+00:00", "Z")})
            place, time_ms = Origin(TOPIC_NAMES[role], 0, number), int(at.timestamp() * 1_000)
            yield Record(role, place, data["server_id"].encode(), value, (), time_ms)

    def _mix(self) -> dict[str, float]:
        return {task: self._choose.gammavariate(0.7, 1) for task in self._played["second"][1]}

    def _day(self, day: int, at: datetime) -> None:
        change, is_changed = self._change, day >= CHANGE_DAY
        played = self._played[change.releases[is_changed]]
        changed = change.steered or change.reader
        for server, tools in played[0].items() if day in (0, CHANGE_DAY) else ():
            if is_changed or server not in ("docs", change.late):
                if is_changed and changed and changed[0] == server:
                    tools = [*(tool | {"title": "New"} if tool["name"] == changed[1] else tool for tool in tools)]
                    tools += [tools[0] | {"name": "read_any"}]
                data: Call = {"server_id": server, "observer_id": "gateway", "snapshot_id": f"{server}-{is_changed}"}
                data |= {"server_scoped": True, "completeness": "complete", "tools": tools}
                self._events.append((at - timedelta(hours=1), Role.SNAPSHOTS, data))
        for agent in range(AGENTS) if at.weekday() < 5 else ():
            if self._choose.random() < 0.1 or (change.all_turn and day == CHANGE_DAY):
                self._mixes[agent] = self._mix()
            for _ in range(self._choose.randint(1, 9)):
                self._session(agent, at + timedelta(hours=self._choose.uniform(0, 8)), played, is_changed)

    def _session(self, agent: int, at: datetime, played: Played, is_changed: bool) -> None:
        self.sessions += 1
        mix, choose = self._mixes[agent], self._choose
        for task in choose.choices(list(mix), list(mix.values()), k=choose.randint(1, 4)):
            run = list(choose.choice(played[1][task]))
            if choose.random() < 0.2:  # Agents look around.
                run.insert(choose.randint(0, len(run)), choose.choice(choose.choice(played[1]["explore"])))
            run = [each for call in run for each in (self._made(call, played) if is_changed else [call])]
            trace_id = f"{choose.getrandbits(128):032x}"
            for number, call in enumerate(run):
                at += timedelta(seconds=choose.uniform(1, 25))
                if is_changed or call["server_id"] != self._change.late:
                    who = {"actor": {"kind": "agent", "agent_id": f"agent-{agent}"}, "trace_id": trace_id}
                    own = {"tool_call_id": f"{trace_id}-{number}", "snapshot_id": f"{call['server_id']}-{is_changed}"}
                    self._events.append((at, Role.CALLS, call | who | own))

    def _made(self, call: Call, played: Played) -> list[Call]:
        """Return the calls that are made, since the change, where one would have been."""
        change, tempted = self._change, self._tempted
        if change.fresh:
            call = call | {"args_hash": f"sha256:{tempted.getrandbits(256):064x}"}
        if tempted.random() >= self._obeys:
            return [call]
        if change.steered and name_of(call) == change.steered[:2]:
            others = [call for runs in played[1].values() for run in runs for call in run]
            beside = tempted.choice([call for call in others if name_of(call) == change.steered[2:]])
            return [beside, call] if change.is_before else [call, beside]
        if change.reader and name_of(call) == READ:
            other = call | {"server_id": change.reader[0], "tool_name": change.reader[1]}
            return [call, other] if change.is_copy else [other]
        return [call]


def name_of(call: Call) -> tuple[str, str]:
    return call["server_id"], call["tool_name"]


def found_in(fleet: Fleet, target: tuple[str, str] | None) -> tuple[Counter[str], list[tuple[int, int]]]:
    """Return findings by severity; and of each agent that called the target ten times or more since the change, and
    if it is no new one before, the highest severity of a finding about it and at which call since the first came."""
    runner = Runner(agent_set((steered_calls_agent, taken_over_agent), digest=f"sha256:{0:064}"))
    counts, calls, changed = Counter[str](), Counter[Any](), (START + timedelta(days=CHANGE_DAY)).isoformat()
    best: dict[str, tuple[int, int]] = {}
    for output in replay(fleet.records(), producer=Producer(version="bench")):
        if output.role is not Role.EVIDENCE:
            continue
        value = orjson.loads(output.value or b"")
        data, is_since, actor = value["data"], value["time"] >= changed, value["data"]["actor"]["agent_id"]
        calls[actor, is_since] += (data["server_id"], data["tool"]) == target
        for finding in (decode_finding(each.value) for each in runner.take([output])):
            assert finding.detection is not None
            level = finding.detection.severity_id
            counts[f"{finding.detection.agent} {LEVELS[level]}"] += 1
            if (finding.server_id, finding.tool_name) == target:
                highest, at = best.get(actor, (0, calls[actor, True]))
                best[actor] = max(highest, level), at
    is_new = not any(calls[each, False] for each, _ in calls)
    often = [each for each, is_since in calls if is_since and calls[each, True] >= CALLS]
    return counts, [best.get(each, (0, 0)) for each in often if is_new or calls[each, False] >= CALLS]


def main() -> None:
    """Record, draw fleets, and print what was found by what changed."""
    parser = argparse.ArgumentParser(description="What the shipped detections of behaviour find.")
    parser.add_argument("--fleets", type=int, default=20)
    seeds = range(parser.parse_args().fleets)
    with tempfile.TemporaryDirectory() as folder:
        played = {name: asyncio.run(play(Path(folder) / name, *release)) for name, release in RELEASES.items()}
    calls = [call for one in played.values() for runs in one[1].values() for run in runs for call in run]
    equal = len({call["args_hash"] for call in calls} & {call["result_hash"] for call in calls})
    print(f"{len(calls)} recorded calls; digests of arguments that are digests of results: {equal}")
    for change in HONEST:
        fleets = [Fleet(played, change, 1, seed) for seed in seeds]
        found = sum((found_in(fleet, None)[0] for fleet in fleets), Counter[str]())
        sessions = sum(fleet.sessions for fleet in fleets)
        rates = ", ".join(f"{name} {count * 1_000 / sessions:.2f}" for name, count in sorted(found.items()))
        print(f"{change.name}: per 1,000 of {sessions:,} sessions: {rates or 'nothing'}")
    for change in ATTACKS:
        for obeys in (1, 0.75, 0.5, 0.25):
            target = change.reader or (change.steered and change.steered[:2])
            rows = [row for seed in seeds for row in found_in(Fleet(played, change, obeys, seed), target)[1]]
            shares = [sum(level >= least for level, _ in rows) / len(rows) for least in (2, 3, 4)]
            first = statistics.median([at for level, at in rows if level] or [0])
            print(
                f"{change.name}, obeyed {obeys:.0%}: of {len(rows)} agents {shares[0]:.2f}, medium {shares[1]:.2f}, "
                f"high {shares[2]:.2f}; first at call {first:.0f}"
            )


if __name__ == "__main__":
    main()
