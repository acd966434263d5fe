"""What came of each try: at real servers, and through a tap that enforces and one that observes.

python -m tests.support.misread_outcomes

prints the table of docs/security.md.
"""

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from assay_stream.observe import Vantage
from assay_stream.observe.http.upstreams import Upstream
from deploy.local.servers import node_package, node_server
from tests.support.deployment import free_port
from tests.support.gates import blocking
from tests.support.http_tap import Tap, http_server, http_tap, listening
from tests.support.misreading import MODERN, Tries, Try
from tests.support.raw_http import connect

LEGACY = "2025-11-25"
_LIMIT_S = 5.0
_AT_ONCE = 8
_CARRIED_OUT = re.compile(rb'"text": ?"(?:Echo: )?was-carried-out"')
_CODE = re.compile(rb'"code": ?"([a-z_]+)"')

Session = Callable[[], Awaitable[tuple[str, ...]]]
"""The headers of a new session."""


@dataclass
class Outcome:
    is_carried_out: bool = False
    enforced: str = ""
    is_passed: bool = False
    """Whether the call was carried out through the tap that enforces."""
    recorded: str = ""
    is_unrecorded: bool = False
    """Whether the call was carried out through the tap that observes, and is not on record."""


@dataclass
class Run:
    server: str
    era: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def named(self, wanted: Callable[[Outcome], bool]) -> list[str]:
        return [name for name, each in self.outcomes.items() if wanted(each)]


async def answer_of(url: str, request: bytes) -> bytes:
    """What a server says until it is clear what it did, or it closes the connection, or for some time."""
    said = b""
    reader, writer = await connect(url)
    with contextlib.suppress(TimeoutError, ConnectionError):
        # The answer to a GET is a stream without end.
        async with asyncio.timeout(_LIMIT_S if request.startswith(b"POST") else 1):
            writer.write(request)
            while not (_CARRIED_OUT.search(said) or _CODE.search(said)) and (part := await reader.read(65_536)):
                said += part
    writer.close()
    return said


async def _no_session() -> tuple[str, ...]:
    return ()


async def run_tries(server: str, url: str, era: str, session: Session = _no_session) -> Run:
    """Send all tries to a server, and through a tap of each kind, where each has a path of its own."""
    tries, run, room = list(Tries(era)), Run(server, era), asyncio.Semaphore(_AT_ONCE)
    run.outcomes = {each.name: Outcome() for each in tries}
    assert len(run.outcomes) == len(tries), "two tries have one name"

    async def send(each: Try, to: str, path: str) -> bytes:
        async with room:
            more = await session()
            return await answer_of(to, each.request(era, *more, path=path, host=to.split("/")[2]))

    async def send_all(to: str, *, paths: bool) -> Iterable[tuple[Outcome, bytes]]:
        answers = [send(each, to, f"/{number}" if paths else "/mcp") for number, each in enumerate(tries)]
        return zip(run.outcomes.values(), await asyncio.gather(*answers), strict=True)

    await answer_of(url, tries[0].request(era, *await session(), host=url.split("/")[2]))  # it may load more at first
    upstreams = [
        Upstream(vantage=Vantage(server_id=f"{n}", observer_id="tap", server_scoped=False), url=url, path=f"/{n}")
        for n in range(len(tries))
    ]
    async with http_tap(upstreams, rule=blocking("echo")) as enforcing, http_tap(upstreams) as observing:
        direct, enforced, observed = await asyncio.gather(
            send_all(url, paths=False), send_all(enforcing.url, paths=True), send_all(observing.url, paths=True)
        )
    for outcome, said in direct:
        outcome.is_carried_out = _is_carried_out(said)
    for outcome, said in enforced:
        outcome.is_passed, outcome.enforced = _is_carried_out(said), _answered(said)
    for (outcome, said), recorded in zip(observed, _recorded(observing, len(tries)), strict=True):
        outcome.recorded = recorded
        outcome.is_unrecorded = _is_carried_out(said) and recorded == "nothing"
    return run


def _is_carried_out(said: bytes) -> bool:
    return b"HTTP/1.1 200" in said and _CARRIED_OUT.search(said) is not None


def _answered(said: bytes) -> str:
    if found := _CODE.search(said):
        return f"`{found[1].decode()}`"
    return said.split()[1].decode() if said.startswith(b"HTTP/") else "closed"


def _recorded(tap: Tap, count: int) -> list[str]:
    kinds: list[set[str]] = [set() for _ in range(count)]
    for each in tap.sink.observations:
        data = json.loads(each.value)["data"]
        kinds[int(data["server_id"])] |= {"call"} if "tool_name" in data else {"loss"} if data.get("calls") else set()
    return [" and ".join(sorted(each)) or "nothing" for each in kinds]


@asynccontextmanager
async def python_server(era: str, *flags: str) -> AsyncIterator[tuple[str, str, str, Session]]:
    async with http_server("stateless", *flags) as url:
        yield "Python", url, era, _no_session


@asynccontextmanager
async def typescript_1() -> AsyncIterator[tuple[str, str, str, Session]]:
    """A server of the TypeScript SDK 1, which has sessions; each try has its own."""
    port = free_port()
    command = [*node_server("@modelcontextprotocol/server-everything", "2026.8.31"), "streamableHttp"]
    asked = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "try", "version": "1"}}
    greeting = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked}).encode()
    with Path(os.devnull).open("wb") as log:
        async with listening(command, port, env={"PORT": str(port)}, log=log):
            url = f"http://127.0.0.1:{port}/mcp"

            async def session() -> tuple[str, ...]:
                reader, writer = await connect(url)
                writer.write(Try("", greeting).request(LEGACY))
                head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
                writer.close()
                return (next(line for line in head if line.lower().startswith("mcp-session-id:")),)

            yield "TypeScript 1", url, LEGACY, session


@asynccontextmanager
async def typescript_2(era: str) -> AsyncIterator[tuple[str, str, str, Session]]:
    port = free_port()
    script = Path(__file__).parent / "node_mcp_server.mjs"
    package = node_package("@modelcontextprotocol/node", "2.1.2", beside=["@modelcontextprotocol/server@2.4.0"])
    async with listening(["node", str(script), str(package), str(port)], port):
        yield "TypeScript 2", f"http://127.0.0.1:{port}/mcp", era, _no_session


SERVERS: dict[str, Callable[[], AbstractAsyncContextManager[tuple[str, str, str, Session]]]] = {
    "Python, until 2025-11-25": lambda: python_server(LEGACY),
    "Python, 2026-07-28": lambda: python_server(MODERN, "json"),
    "TypeScript 1": typescript_1,
    "TypeScript 2, until 2025-11-25": lambda: typescript_2(LEGACY),
    "TypeScript 2, 2026-07-28": lambda: typescript_2(MODERN),
}


async def run_at(server: str) -> Run:
    async with SERVERS[server]() as served:
        return await run_tries(*served)


_COLUMNS = ("Python", "TypeScript 1", "TypeScript 2")


def table(runs: Sequence[Run]) -> Iterator[str]:
    """The rows of the table: tries of a class that came out alike are in one row."""
    yield f"| class | tries | {' | '.join(_COLUMNS)} | the tap that enforces | the tap that observes |"
    yield "|---|---|---|---|---|---|---|"
    alike: dict[tuple[str, ...], list[str]] = {}
    for each in Tries(MODERN):
        alike.setdefault((each.group, *_cells(runs, each.name)), []).append(each.name)
    for (group, *cells), names in alike.items():
        yield f"| {group} | {', '.join(map(shown, names))} | {' | '.join(cells)} |"


def _cells(runs: Sequence[Run], name: str) -> tuple[str, ...]:
    def of(server: str) -> str:
        eras = {run.era: run.outcomes[name].is_carried_out for run in runs if run.server == server}
        found = [era for era, is_carried_out in eras.items() if is_carried_out]
        return ("yes" if len(found) == len(eras) else found[0]) if found else "no"

    outcomes = [run.outcomes[name] for run in runs]
    # What a server refuses is no loss, whatever it was.
    counting = [each for each in outcomes if each.is_carried_out] or outcomes
    enforced, recorded = {each.enforced for each in outcomes}, {each.recorded for each in counting}
    return (*map(of, _COLUMNS), ", ".join(sorted(enforced)), ", ".join(sorted(recorded)))


def shown(name: str) -> str:
    return f"`{name.replace('`', '')}`".replace("|", "\\|")


def differences(run: Run, documented: str) -> list[str]:
    """The tries that came out otherwise than a table says, or are missing there."""
    rows = [line.strip("| ").split(" | ") for line in documented.splitlines() if line.count(" | ") == 6]
    found = []
    for name, each in run.outcomes.items():
        cells = next((row[2:] for row in rows if shown(name) in row[1]), None)
        if cells is None:
            found.append(f"{name}: missing")
            continue
        is_carried_out = cells[_COLUMNS.index(run.server)] in ("yes", run.era)
        is_recorded = not each.is_carried_out or each.recorded in cells[4].split(", ")
        if is_carried_out != each.is_carried_out or each.enforced not in cells[3].split(", ") or not is_recorded:
            found.append(f"{name}: {each}, not {cells}")
    return found


async def _all() -> list[Run]:
    return [await run_at(server) for server in SERVERS]


if __name__ == "__main__":
    print(*table(asyncio.run(_all())), sep="\n")
