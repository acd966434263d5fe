"""The store at size: how fast it fills, what a page takes meanwhile and afterwards, and what that takes of memory.

    python -m bench.bench_readmodel [--records N] [--folder FOLDER]

Records are evidence as the join writes it of a made-up fleet, every call with digests of its own. The time to make
them is not counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from assay_stream.limits import STORE_BATCH_RECORDS
from assay_stream.model.facts import Catalogue, Seen, ToolFact, encode_key, encode_value
from assay_stream.model.record import Origin, Record, Role
from assay_stream.model.wire import BaseFact
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import Filler, fill
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import EvidenceFilter, Paging

BATCH = STORE_BATCH_RECORDS
SERVERS, TOOLS = 1_000, 50
ROUNDS = 15
START_S = 1_772_323_200


def _hex(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def evidence(number: int) -> bytes:
    """One record of evidence, some two kilobytes as the join writes it."""
    server, tool, version = number % SERVERS, number // SERVERS % TOOLS, number // 500_000
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(START_S + number // 10)) + f".{number % 10}00000Z"
    full = _hex("full", server, tool, version)
    data = {
        "actor": {"agent_id": f"agent-{number % 211}", "kind": "agent"},
        "args_hash": f"sha256:{_hex('args', number)}",
        "binding": {
            "catalogue_digest": f"sha256:{_hex('list', server, version)}",
            "full_digest": f"sha256:{full}",
            "origin": {"offset": version, "partition": 0, "topic": "mcp.tools.list"},
            "scope": "exact",
            "server_scoped": True,
            "snapshot_id": f"snapshot-{version}",
        },
        "decision": "deny" if number % 997 == 0 else "allow",
        "delegation_depth": 1,
        "observer_id": f"observer-{server % 7}",
        "ok": True,
        "origin": {"offset": number // 8, "partition": number % 8, "topic": "mcp.tools.call"},
        "pin": {"status": "unpinned"},
        "policy_digest": f"sha256:{_hex('policy')}",
        "reason_code": "P_POLICY_ALLOW",
        "result_hash": f"sha256:{_hex('result', number)}",
        "server_id": f"server-{server}",
        "side_effect": "READ",
        "timing": {"duration_ms": number % 50, "ended_at": at, "started_at": at},
        "tool": f"tool_{tool}",
        "tool_call_id": f"call-{number}",
        "tool_definition_canonicalization": "jcs:mcp_tool_definition.v1",
        "tool_definition_digest": f"sha256:{_hex('v1', full)}",
        "tool_definition_digest_alg": "sha256",
        "tool_definition_schema": "assay.mcp.tool-definition.snapshot.v1",
        "tool_definition_source": "mcp.tools/list",
        "tool_identity": {
            "meta_hash": _hex("meta", full),
            "schema_hash": _hex("schema", full),
            "server_id": f"server-{server}",
            "tool_name": f"tool_{tool}",
        },
        "trace_id": _hex("trace", number)[:32],
    }
    event = {
        "assaycontenthash": f"sha256:{_hex('content', number)}",
        "assaygit": "unknown",
        "assaypii": False,
        "assayproducer": "assay-stream",
        "assayproducerversion": "0.1.0",
        "assaysecrets": False,
        "data": data,
        "datacontenttype": "application/json",
        "id": _hex("id", number),
        "source": "urn:assay-stream",
        "specversion": "1.0",
        "subject": data["tool"],
        "time": at,
        "type": "assay.tool.decision",
    }
    return json.dumps(event, separators=(",", ":")).encode()


def listed() -> Iterator[Record]:
    """What the registry wrote of the fleet: each server's list, its definitions, and who was shown it."""
    for number, fact in enumerate(_facts()):
        origin = Origin("bench.tool.binding", 0, number)
        yield Record(Role.BINDINGS, origin, encode_key(fact.key()), encode_value(fact))


def _facts() -> Iterator[BaseFact]:
    for server in range(SERVERS):
        name = f"server-{server}"
        fulls = {f"tool_{tool}": f"sha256:{_hex('full', server, tool, 0)}" for tool in range(TOOLS)}
        for full in fulls.values():
            schemes = {each: f"sha256:{_hex(each, full)}" for each in ("assay.v1", "hangar.v2", "manifest.v1")}
            yield ToolFact(
                server_id=name, server_scoped=True, full=full, schemes=schemes, errors={}, fields={}, packed=""
            )
        digest = f"sha256:{_hex('list', server, 0)}"
        yield Catalogue(server_id=name, digest=digest, server_scoped=True, tools=fulls)
        for observer in range(2):
            yield Seen(
                server_id=name,
                observer_id=f"observer-{(server + observer) % 7}",
                origin=Origin("mcp.tools.list", 0, server * 2 + observer),
                time_us=START_S * 1_000_000,
                snapshot_id="snapshot-0",
                catalogue=digest,
                completeness="complete",
            )


def batches(records: int) -> Iterator[list[Record]]:
    for begin in range(0, records, BATCH):
        part = begin // BATCH % 8
        # The offsets of a partition follow each other, one batch a time.
        first = begin // BATCH // 8 * BATCH
        yield [
            Record(Role.EVIDENCE, Origin("bench.tool.decision", part, first + index), b"", evidence(begin + index))
            for index in range(min(BATCH, records - begin))
        ]


QUESTIONS: dict[str, Callable[[Store, int], Any]] = {
    "page, newest": lambda store, _: store.evidence(EvidenceFilter()),
    "by server": lambda store, n: store.evidence(EvidenceFilter(server_id=f"server-{n % SERVERS}")),
    "by time": lambda store, n: store.evidence(
        EvidenceFilter(since_us=(START_S + n) * 1_000_000, until_us=(START_S + n + 60) * 1_000_000)
    ),
    "by digest of one call": lambda store, n: store.evidence(EvidenceFilter(digest=_hex("args", n))),
    "by digest of a definition": lambda store, n: store.evidence(
        EvidenceFilter(digest=_hex("v1", _hex("full", n % SERVERS, 3, 0)))
    ),
    "by digest of every call": lambda store, _: store.evidence(EvidenceFilter(digest=_hex("policy"))),
    "places of a digest": lambda store, n: store.places(_hex("full", n % SERVERS, 3, 0)),
    "refused calls of an observer": lambda store, n: store.evidence(
        EvidenceFilter(observer_id=f"observer-{n % 7}", decision="deny")
    ),
    "server, tool and agent": lambda store, n: store.evidence(
        EvidenceFilter(server_id=f"server-{n % SERVERS}", tool_name="tool_3", agent_id=f"agent-{n % 211}")
    ),
    "no such agent on a server": lambda store, n: store.evidence(
        EvidenceFilter(server_id=f"server-{n % SERVERS}", tool_name="tool_3", observer_id="observer-0", is_unbound=True)
    ),
    "servers, 200 a page": lambda store, _: store.servers(
        now_us=(START_S + 100_000) * 1_000_000, paging=Paging(limit=200)
    ),
    "tools, 200 a page": lambda store, _: store.tools(now_us=(START_S + 100_000) * 1_000_000, paging=Paging(limit=200)),
    "tools of a server": lambda store, n: store.tools(
        now_us=(START_S + 100_000) * 1_000_000, server_id=f"server-{n % SERVERS}", paging=Paging(limit=200)
    ),
    "versions of a tool": lambda store, n: store.versions(f"server-{n % SERVERS}", "tool_3"),
    "observers": lambda store, _: store.observers(now_us=(START_S + 100_000) * 1_000_000),
    "status": lambda store, _: store.status(),
}


def ask(folder: Path, records: int, rounds: int) -> dict[str, list[float]]:
    store = Store(schema.reading(folder))
    taken: dict[str, list[float]] = {name: [] for name in QUESTIONS}
    for number in range(rounds):
        for name, question in QUESTIONS.items():
            started_s = time.perf_counter()
            question(store, number * 7_919 % records)
            taken[name].append((time.perf_counter() - started_s) * 1_000)
    store.close()
    return taken


def _ask_until(folder: Path, records: int, stop: Any, answers: Any) -> None:
    taken: dict[str, list[float]] = {name: [] for name in QUESTIONS}
    while not stop.is_set():
        for name, found in ask(folder, records, 1).items():
            taken[name] += found
        time.sleep(0.5)
    answers.put(taken)


def shown(title: str, taken: dict[str, list[float]]) -> None:
    print(f"\n{title}: median and worst, ms")
    for name, found in taken.items():
        print(f"  {name:<30} {statistics.median(found):8.1f} {max(found):8.1f}")


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


def measure(folder: Path, records: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    context = multiprocessing.get_context("spawn")
    stop, answers = context.Event(), context.Queue()
    reader = context.Process(target=_ask_until, args=(folder, records, stop, answers))
    wall_s = cpu_s = 0.0
    with schema.writing(folder) as connection:
        filler = Filler(connection)
        fill(connection, listed())
        filler.refresh()
        for number, batch in enumerate(batches(records)):
            wall, cpu = time.perf_counter(), time.process_time()
            filler.take(batch)
            wall_s += time.perf_counter() - wall
            cpu_s += time.process_time() - cpu
            if number == 0:
                reader.start()
            if number % 40 == 0:
                print(f"{(number + 1) * BATCH:>9,} {(number + 1) * BATCH / cpu_s:,.0f} records/s of CPU", flush=True)
        print(f"filled {records:,}: {records / wall_s:,.0f} records/s of wall time, {records / cpu_s:,.0f} of CPU")
        print(
            f"peak memory of the writer {peak_mib():,.0f} MiB; file "
            f"{(folder / schema.FILE).stat().st_size / 2**20:,.0f} MiB"
        )
    stop.set()
    shown("while it filled, from another process", answers.get(timeout=600))
    reader.join()
    shown("afterwards", ask(folder, records, ROUNDS))
    print(f"load of the machine: {os.getloadavg()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "assay-readmodel")
    given = parser.parse_args()
    measure(given.folder, given.records)


if __name__ == "__main__":
    main()
