"""What the benches compute themselves: the peers' evidence, its comparison with ours, and the tables of docs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from assay_stream import engine
from assay_stream.engine import EngineState
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Origin, Record, Role
from bench import tables
from bench.capacity import Costs, Fleet, costs_of, expected, needs
from bench.peers.bindings import tools_of
from bench.peers.compare import Comparison, compare
from bench.peers.evidence import binding_key, evidence_of
from bench.results import write_line
from bench.rounds import QUIET_BUSY_MAX
from bench.synthetic import calls, facts
from bench.tables import TABLES, peers, quiet_rounds, with_tables
from tests.support.fleet import Fleet as History

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_peers_join_writes_what_ours_writes() -> None:
    """Key, bytes and time of every evidence record are equal where no server changes its tools."""
    state = EngineState(producer=Producer(version="1"))
    published = list(History(servers=3, observers=2, calls=60, changes=0).history())
    logs: dict[Role, list[Record]] = {Role.SNAPSHOTS: [], Role.CALLS: []}
    for role, key, value in published:
        logs[role].append(Record(role, Origin(f"t.{role}", 0, len(logs[role])), key, value))
    for record in logs[Role.SNAPSHOTS]:
        for out in engine.process(state, record):
            if out.role is Role.BINDINGS:
                state.view.take(Record(Role.BINDINGS, Origin("b", 0, 0), out.key, out.value))
    bindings = {
        binding_key(server_id, tool_name): found
        for server_id, server in state.view.servers.items()
        for tool_name, found in tools_of(server_id, server)
    }
    for record in logs[Role.CALLS]:
        (ours,) = engine.process(state, record)
        topic, partition, offset = record.origin
        theirs = evidence_of(
            record.value or b"", bindings, topic=topic, partition=partition, offset=offset, version="1"
        )
        assert theirs == (ours.key, ours.value, ours.timestamp_ms)


def test_a_peer_that_does_not_know_the_tool_says_so() -> None:
    """Without a binding evidence has the reason, and no digest."""
    ((raw),) = calls(1, 1, 1)
    found = evidence_of(raw, {}, topic="t", partition=0, offset=0, version="1")
    assert b'"unbound_reason":"definition_not_observed"' in found.value
    assert b"tool_definition_digest" not in found.value


def evidence(snapshot_id: str, more: str = "") -> tuple[bytes | None, bytes]:
    """Key and value of an evidence record, as far as a comparison looks."""
    return b"k", f'{{"data":{{"binding":{{"snapshot_id":"{snapshot_id}"}},"more":"{more}"}}}}'.encode()


def test_a_comparison_tells_an_older_list_from_a_difference() -> None:
    """Only records that both have count; a call bound to a list before the last is no fault of the peer."""
    ours = {(0, 0): evidence("1"), (0, 1): evidence("1"), (0, 2): evidence("1"), (0, 3): evidence("1")}
    theirs = {(0, 0): evidence("1"), (0, 1): evidence("2"), (0, 2): evidence("1", "x"), (1, 0): evidence("1")}
    assert compare(ours, theirs) == Comparison(same=1, older=1, different=1)


def test_the_facts_of_a_made_up_fleet_are_those_of_its_servers() -> None:
    """Every server, observer and list is there once, and every call of the fleet is bound."""
    state = EngineState(producer=Producer(version="1"))
    for key, value in facts(3, 2, 4):
        state.view.take(Record(Role.BINDINGS, Origin("b", 0, 0), key, value))
    assert sorted(state.view.servers) == ["server-0", "server-1", "server-2"]
    for server in state.view.servers.values():
        assert [len(timeline) for timeline in server.observers.values()] == [4, 4]
        names = {seen.snapshot_id for timeline in server.observers.values() for seen in timeline}
        assert len(names) == 8
        assert all(server.named(name, "nobody") for name in names)
    for number, raw in enumerate(calls(3, 2, 50, zipf_exponent=1.1)):
        (out,) = engine.process(state, Record(Role.CALLS, Origin("c", 0, number), None, raw))
        assert out.label in ("bound:exact", "bound:observer")


COSTS = Costs(
    call_us=20.0,
    first_call_us=50.0,
    call_bytes=1_000.0,
    evidence_bytes=2_000.0,
    server_bytes=2.0**20,
    observer_bytes=2.0**10,
    list_bytes=2.0**9,
    shelved_list_bytes=2.0**4,
    registry_list_bytes=2.0**8,
    fact_us=10.0,
    fact_read_us=30.0,
    client_us=1_000.0,
    new_ms=100.0,
    repeated_ms=9.0,
    repeated_small_ms=4.0,
)


def test_what_a_fleet_needs_is_worked_out_from_the_costs() -> None:
    """By hand: 72,000 proxies that each list their one server once an hour list 20 times a second."""
    fleet = Fleet(proxies=72_000, servers=864, servers_each=1, calls_per_s=0.1, peak=5.0, lists_kept=3)
    found = needs(fleet, COSTS)
    assert found["calls/s at the peak"] == pytest.approx(36_000)
    assert found["cores of the join at the peak"] == pytest.approx(1.8)
    assert found["join workers"] == 3
    assert found["lists/s"] == pytest.approx(20)
    assert found["cores of the registry"] == pytest.approx(20 * (0.009 + 0.001) + 0.01 * (0.100 + 0.001))
    assert found["GB a day, calls and evidence, on all replicas"] == pytest.approx(7_200 * 86_400 * 3_000 * 3 / 1e9)
    one_list = 864 + 72_000 / 1_024
    assert found["MiB of all join workers, one list of each observer"] == pytest.approx(100 + one_list)
    all_lists = 100 + one_list + 72_000 * 2 / 2_048
    assert found["MiB of all join workers, all lists that are kept"] == pytest.approx(all_lists)
    in_registries = found["MiB of all registry workers, all lists that are kept"]
    assert in_registries == pytest.approx(100 + one_list + 72_000 * 2 / 4_096)


def test_workers_that_each_load_their_share_divide_the_state() -> None:
    """A process without state takes 100 MiB; of 1,024 observers with 512 lists of 16 bytes each has an eighth."""
    found = needs(Fleet(proxies=1_024, servers=1, servers_each=1, lists_kept=512), COSTS)
    assert found["join workers, at least eight"] == 8
    assert found["MiB of each of these, all lists, older ones on disk"] == pytest.approx(100 + 1)


def test_a_real_run_is_held_against_the_costs() -> None:
    """What the costs say comes first, what was measured second."""
    run = {
        "servers": 2,
        "observers": 1_000,
        "calls": 10_000,
        "empty_join_mib": 100.0,
        "first_join_mib": 105.0,
        "again_registry_s": 6.0,
        "again_join_s": 0.02,
        "calls_join_s": 0.4,
        "call_bytes": 900.0,
        "evidence_bytes": 2_100.0,
    }
    said, measured = ({name: pair[index] for name, pair in expected(run, COSTS).items()} for index in (0, 1))
    assert said == pytest.approx(
        {
            "registry, s of CPU for a repeated list of each observer": 5.0,
            "join, s of CPU for the facts of these lists": 1.04,
            "join, s of CPU for the calls": 0.5,
            "join, MiB with one list of each observer": 100 + 2 + 1_000 / 1_024,
            "bytes of a call in its topic": 1_000.0,
            "bytes of its evidence": 2_000.0,
        }
    )
    assert list(measured.values()) == [6.0, 0.02, 0.4, 105.0, 900.0, 2_100.0]


def test_a_fleet_that_does_little_still_has_a_worker() -> None:
    """Nobody runs none."""
    assert needs(Fleet(proxies=1, servers=1), COSTS)["join workers"] == 1


def test_costs_are_the_slopes_of_the_curves() -> None:
    """What every process needs anyway is in no slope."""

    def point(curve: str, count: int, state_mib: float) -> dict[str, object]:
        sizes = {"call_bytes": 1.0, "evidence_bytes": 2.0, "load_us_per_fact": 3.0, "read_us_per_fact": 7.0}
        sizes["call_us"] = 5.0 if count > 1 else 2.0
        return {"bench": "state", "curve": curve, curve: count, "state_mib": state_mib, **sizes}

    rows = [point(curve, 1_025, 6.0) for curve in ("observers", "lists")] + [point("servers", 11, 25.0)]
    rows += [point(curve, 1, 5.0) for curve in ("observers", "lists", "servers")]
    rows += [point("lists", count, mib) | {"curve": "shelved"} for count, mib in ((1_024, 2.0), (2_048, 3.0))]
    rows += [point("lists", count, mib) | {"curve": "registry"} for count, mib in ((1_024, 2.0), (2_048, 4.0))]
    rows += [
        {"bench": "registry", "tools": 50, "new_ms": 4.0, "repeated_ms": 5.0},
        {"bench": "registry", "tools": 3, "new_ms": 1.0, "repeated_ms": 0.5},
        {"bench": "workers", "workers": 1, "cpu_us": 6.0},
    ]
    costs = costs_of(rows)
    assert (costs.server_bytes, costs.observer_bytes, costs.list_bytes) == (2 * 2**20, 2**10, 2**10)
    assert (costs.shelved_list_bytes, costs.registry_list_bytes) == (2**10, 2**11)
    assert (costs.call_us, costs.new_ms, costs.repeated_ms, costs.fact_us) == (6.0, 4.0, 5.0, 3.0)
    assert (costs.client_us, costs.first_call_us, costs.fact_read_us) == (4.0, 9.0, 7.0)
    assert costs.repeated_small_ms == 0.5


def test_costs_of_benches_that_were_not_run_are_not_made_up() -> None:
    """The message names what to run."""
    with pytest.raises(LookupError, match="make bench-curves"):
        costs_of([])


def test_a_document_keeps_all_but_its_tables() -> None:
    """What stands between the marks is made anew; the marks stay, so that it can be made again."""
    rows = [{"bench": "workers", "workers": count, "cpu_us": 10.0 * count, "calls_per_s": 2_000.0} for count in (1, 2)]
    text = "a\n<!-- table workers: make it -->\nold\n<!-- end of table -->\nb\n"
    made = (
        "a\n<!-- table workers: make it -->\n| workers | µs CPU per call, of all | calls/s |\n|---|---|---|\n"
        "| 1 | 10.0 | 2,000 |\n| 2 | 20.0 | 2,000 |\n<!-- end of table -->\nb\n"
    )
    assert with_tables(text, rows) == made
    assert with_tables(made, rows) == made
    assert with_tables(made, []) == made


def test_programs_are_told_by_the_ratios_of_their_rounds() -> None:
    """One round in which the machine was busy decides nothing, and a program with one round has no interval."""
    rounds = {"assay-stream": (20.0, 25.0, 90.0), "faust": (200.0, 250.0, 900.0), "slow": (100.0,)}
    rows = [
        {
            "bench": "peers",
            "program": program,
            "round": number,
            "cpu_us": cpu_us,
            "calls_per_s": 1e6 / cpu_us,
            "memory_mib": 1.0,
        }
        for program, times_us in rounds.items()
        for number, cpu_us in enumerate(times_us)
    ]
    made = peers(rows)
    assert "| assay-stream | 1 | 1 | 40,000 | 25.0 | 1 | 3 |\n" in made
    assert "| faust | 0.10 (0.10 to 0.10) | 10.00 (10.00 to 10.00) | 4,000 | 250.0 | 1 | 3 |\n" in made
    assert "| slow | too few rounds | too few rounds |" in made


def test_figures_of_a_loaded_machine_are_not_put_into_the_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless somebody asks for them."""
    document = tmp_path / "page.md"
    document.write_text("<!-- table workers: make it -->\nold\n<!-- end of table -->\n", encoding="utf-8")
    row = {"bench": "workers", "workers": 1, "cpu_us": 10.0, "calls_per_s": 2_000.0, "busy": QUIET_BUSY_MAX + 0.01}
    write_line(tmp_path / "results" / "a.jsonl", row)
    arguments = ["tables", str(tmp_path / "results"), str(document)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match="the machine was in use while workers ran"):
        tables.main()
    assert "old" in document.read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", [*arguments, "--loaded"])
    tables.main()
    assert "| 1 | 10.0 | 2,000 |" in document.read_text(encoding="utf-8")


@pytest.mark.parametrize(("rounds", "refused"), [(4, []), (3, ["peers"])])
def test_a_round_in_which_the_machine_was_busy_is_left_out(rounds: int, refused: list[str]) -> None:
    """With every program of it, as long as three others are left."""
    rows: list[dict[str, object]] = [
        {"bench": "peers", "program": program, "round": number, "busy": 0.0}
        for number in range(rounds)
        for program in ("one", "other")
    ]
    rows[0]["busy"] = QUIET_BUSY_MAX + 0.01
    assert quiet_rounds(rows) == (rows[2:], refused)


def test_every_table_of_the_docs_is_one_that_can_be_made() -> None:
    """A name that is misspelt would stop the next refresh."""
    for document in ("performance.md", "capacity.md"):
        names = re.findall(r"<!-- table (\w+):", (DOCS / document).read_text(encoding="utf-8"))
        assert names
        assert set(names) <= set(TABLES)
