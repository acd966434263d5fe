"""What one release writes and another reads: taps, workers, stores, consoles, and commands over topics."""

import asyncio
import hashlib
import json
import re
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

from assay_stream.model.record import Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.queries import Store
from tests.integration.test_store import answers
from tests.mixed.rolling import FUTURE, NEWER, OLDER, Rollout
from tests.support.behind_tap import behind_tap
from tests.support.console_process import console
from tests.support.deployment import Deployment

TAPPED_CALLS = 5
_TOOLS = {"tools": [{"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}]}
_PAGES = ("/", "/alerts", "/servers", "/evidence", "/health")
_CODE = re.compile(r"^assay-stream: ([a-z_]+): ", re.MULTILINE)
OTHER = {OLDER: NEWER, NEWER: OLDER}
"""Who reads what a release writes."""


class Pairs:
    """What came of each meeting, by what met and by which release wrote."""

    def __init__(self) -> None:
        self.found: defaultdict[str, dict[str, str]] = defaultdict(dict)

    def note(self, meeting: str, writer: str, outcome: str) -> None:
        print(f"mixed:         {meeting}, {writer} writes: {outcome}", flush=True)
        self.found[meeting][writer] = outcome

    def table(self) -> str:
        lines = [f"{'':34}{'older → newer':26}{'newer → older':26}future, finalised → newer"]
        for meeting, outcomes in self.found.items():
            lines.append(
                f"{meeting:34}" + "".join(f"{outcomes.get(writer, ''):26}" for writer in (OLDER, NEWER, FUTURE))
            )
        return "\n".join(lines)


async def note_tap(run: Rollout, pairs: Pairs, release: str, folder: Path) -> None:
    """Let a tap of a release observe a server, and wait until the workers of the other have joined its calls."""
    server = f"behind-{release}"
    async with behind_tap(run.releases[release], server, [_TOOLS], folder) as client:
        await client.list_tools()
        await asyncio.sleep(1)  # Calls are read after the list they rest on, in a replay too.
        for _ in range(TAPPED_CALLS):
            await client.call("echo")
    marker = f'"server_id":"{server}"'.encode()
    seen = await run.crew.deployment.wait_for(
        Role.EVIDENCE, lambda records: sum(marker in (each.value or b"") for each in records) >= TAPPED_CALLS
    )
    bound = [b'"tool_definition_digest":' in (each.value or b"") for each in seen if marker in (each.value or b"")]
    assert bound == [True] * TAPPED_CALLS, f"calls that a tap of the {release} release saw are not bound: {bound}"
    run.load.calls += TAPPED_CALLS
    pairs.note("`tap` → `worker`", release, "joined")


async def begin_stores(run: Rollout, folder: Path) -> None:
    """Let each release fill a store with what is there so far."""
    for filled in await asyncio.gather(*(_fill(run, release, folder / release) for release in OTHER)):
        assert filled.returncode == 0, filled.stderr


async def _note_store(run: Rollout, pairs: Pairs, folder: Path, writer: str, reader: str) -> None:
    store, before = folder / writer, _digest(folder / writer)
    pairs.note("`worker` → `store run`", reader, "filled")
    wanted, read = await asyncio.gather(*(_alerts(run.releases[each], store) for each in (writer, reader)))
    if read == wanted:
        await asyncio.to_thread(_open_pages, run.releases[reader], store)
    assert read == wanted or read.startswith("refused"), f"{reader}: other answers over the store of {writer}"
    pairs.note("store → commands, `console`", writer, "same answers" if read == wanted else read)
    again = await _fill(run, reader, store)
    pairs.note("store → `store run`", writer, refusal(again) if again.returncode else "filled on")
    if again.returncode:
        assert _digest(store) == before, "a store was refused, and changed"
        assert await _alerts(run.releases[writer], store) == wanted, "a store was refused, and changed"


async def note_stores(run: Rollout, pairs: Pairs, folder: Path) -> None:
    """Let each release read the store of the other, and fill it on."""
    await asyncio.gather(*(_note_store(run, pairs, folder, *pair) for pair in OTHER.items()))
    if all(outcome == "filled on" for outcome in pairs.found["store → `store run`"].values()):
        older, newer = (answers(Store(schema.reading(folder / release))) for release in OTHER)
        # How many records a store has read follows from what was compacted before.
        assert older | {"read": 0} == newer | {"read": 0}, "two stores of the same topics give different answers"


async def note_store_refused(run: Rollout, pairs: Pairs, folder: Path) -> None:
    """Let ours go on with its store where a later release has finalised its level: it must not read what that wrote."""
    store = folder / NEWER
    before = _digest(store)
    pairs.note("`worker` → `store run`", FUTURE, refusal(await _fill(run, NEWER, store)))
    assert _digest(store) == before, "a store changed"


async def _fill(run: Rollout, release: str, store: Path) -> CompletedProcess[str]:
    return await _run(run.releases[release], "store", "run", "--once", "--store", str(store))


async def note_commands(run: Rollout, pairs: Pairs, others: Mapping[str, str]) -> None:
    """Let releases verify and replay what others have written too.

    Args:
        others: for each writer, who reads.
    """
    await asyncio.gather(*(_note_commands(run, pairs, *pair) for pair in others.items()))


async def _note_commands(run: Rollout, pairs: Pairs, writer: str, reader: str) -> None:
    verified, compared = await asyncio.gather(
        _run(run.releases[reader], "verify", "--from-kafka"),
        _run(run.releases[reader], "compare", "--from-kafka", "--format", "json"),
    )
    assert verified.returncode == 0, f"{reader}: {verified.stdout}\n{verified.stderr}"
    pairs.note("`worker` → `verify`", writer, "holds")
    pairs.note("`worker` → `replay`, `compare`", writer, _software_only(compared))


def _software_only(compared: CompletedProcess[str]) -> str:
    """Check that whatever differs in evidence is the release that wrote it."""
    differences = [json.loads(line) for line in compared.stdout.splitlines()]
    causes = {tuple(each["causes"]) for each in differences if each.get("what") == "evidence"}
    assert causes == {("software_changed",)}, f"{causes} {compared.stderr} {compared.stdout[:2_000]}"
    return "only `software_changed`"


async def _alerts(deployment: Deployment, store: Path) -> str:
    """What a command says of the alerts in a store, or the code with which it refuses it."""
    listing = ("alerts", "list", "--status", "all", "--format", "json", "--store", str(store))
    done = await _run(deployment, *listing)
    return refusal(done) if done.returncode else done.stdout


def _open_pages(deployment: Deployment, store: Path) -> None:
    with console(store, python=deployment.python, env=deployment.env) as address:
        for page in _PAGES:
            assert urllib.request.urlopen(address + page, timeout=30).status == 200  # noqa: S310


def refusal(done: CompletedProcess[str]) -> str:
    named = _CODE.search(done.stderr)
    assert named is not None, f"ended with {done.returncode}:\n{done.stderr}"
    return f"refused: `{named[1]}`"


def _digest(store: Path) -> str:
    return hashlib.sha256((store / schema.FILE).read_bytes()).hexdigest()


async def _run(deployment: Deployment, *arguments: str) -> CompletedProcess[str]:
    return await asyncio.to_thread(deployment.run, *arguments)
