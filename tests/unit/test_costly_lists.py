"""The search for costly lists: what it measures, and that it finds what is known to cost."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import orjson
import pytest

from assay_stream.bindings.server import ServerBindings
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.definition_facts import Catalogue
from assay_stream.model.envelope import Producer
from assay_stream.model.facts import Seen
from assay_stream.model.record import Role
from assay_stream.registry.processor import Registry, process
from tests.fuzz.cost import Objective, grown, measure, report, search, starts
from tests.support.events import a_snapshot, record_of
from tests.support.peaks import taken

PLAIN = ([{"name": "t", "description": "Adds two numbers."}], [{"name": "t", "description": "Adds numbers."}])


def test_a_list_that_is_the_same_draws_on_no_budget() -> None:
    assert measure((PLAIN[0], PLAIN[0])).units == 0
    assert measure(PLAIN).units > 0


def test_memory_is_measured_where_it_is_asked_for() -> None:
    """Tracing costs time, so that the other searches go without."""
    assert measure(PLAIN).peak_bytes == 0
    assert measure(PLAIN, memory=True).peak_bytes > 0


def test_a_pair_is_grown_to_the_size_that_is_asked_for() -> None:
    """Of the same tools under other names."""
    before, after = grown(PLAIN, 100_000)
    assert len(before) == len(after) == len({tool["name"] for tool in after})
    assert 90_000 < len(orjson.dumps(after)) < 150_000


def test_what_is_found_costs_no_less_than_where_the_search_began() -> None:
    """It keeps the best, and repeats with its seed until time is up."""
    pairs = list(starts())[:6]
    best = max(measure(pair).per_byte(Objective.UNITS) for pair in pairs if measure(pair).input_bytes > 4_096)
    _, cost = search(1.0, 1, Objective.UNITS, pairs)
    assert cost.per_byte(Objective.UNITS) >= best


def test_what_is_found_is_kept_to_be_tested(tmp_path: Path) -> None:
    """One pair for each objective, as JSON."""
    few = list(islice(starts(), 3, 9))
    with patch("tests.fuzz.cost.starts", lambda: few):
        lines = list(report(tmp_path, 0.6, 1))
    assert [line.split(":")[0] for line in lines] == [objective.value for objective in Objective]
    for objective in Objective:
        before, after = json.loads((tmp_path / f"{objective}.json").read_text())
        assert measure((before, after)).input_bytes > 0


COSTLY = sorted((Path(__file__).parents[1] / "data" / "costly").glob("*.json"))


@pytest.mark.parametrize("path", COSTLY, ids=lambda path: path.stem)
def test_what_the_search_once_found_stays_within_the_bounds(path: Path) -> None:
    """Grown to half a megabyte, or to as many tools as a list may have."""
    cost = taken("lists", str(path))[str(path)]
    assert 0 < cost.units <= DEFAULT_LIMITS.work_units_max
    assert 0 < cost.peak_mb <= 256


@pytest.mark.parametrize("version", [0, 1])
def test_one_name_with_thousands_of_definitions_is_compared_in_sets(version: int) -> None:
    """Its definitions are looked up, not searched for one in another: of such a list that took seconds."""
    some = [[{"name": "t", "description": f"{side} {index}"} for index in range(2_000)] for side in range(2)]
    looked_at = 0

    class Counted(tuple[str, ...]):
        def __contains__(self, key: object) -> bool:
            nonlocal looked_at
            looked_at += len(self)
            return super().__contains__(key)

    definitions_of = Catalogue.definitions_of
    with patch.object(Catalogue, "definitions_of", lambda *args: Counted(definitions_of(*args))):
        assert measure((some[0], some[version])).input_bytes > 0
    assert looked_at == 0


def test_a_server_whose_lists_are_partial_costs_no_more_with_every_list() -> None:
    """Of lists that add up, as many are merged as may, however many there are."""
    registry = Registry(producer=Producer(version="1"), partitions=1)
    merged: list[int] = []
    update = ServerBindings.catalogue_of

    def counted(server: ServerBindings, seen: Seen) -> Catalogue:
        merged[-1] += 1
        return update(server, seen)

    with patch.object(ServerBindings, "catalogue_of", counted):
        for number in range(3 * DEFAULT_LIMITS.lists_merged_max):
            merged.append(0)
            tools = [{"name": "t"}, {"name": "x", "description": str(number)}]
            fields = {"snapshot_id": str(number), "completeness": "partial"}
            value = a_snapshot(*tools, number=number, second=number, **fields)
            process(registry, record_of(Role.SNAPSHOTS, value, offset=number))
    assert merged[-1] <= merged[DEFAULT_LIMITS.lists_merged_max + 1]
