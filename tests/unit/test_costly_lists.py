"""Lists that once cost the registry much stay within the bounds."""

from pathlib import Path
from unittest.mock import patch

import pytest

from assay_stream.bindings.server import ServerBindings
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.evidence import Producer
from assay_stream.model.facts import Catalogue, Seen
from assay_stream.model.record import Role
from assay_stream.registry.processor import Registry, process
from tests.support.events import a_snapshot, record_of
from tests.support.peaks import taken, units_of


def test_a_list_that_is_the_same_draws_on_no_budget() -> None:
    before, after = ([{"name": "t", "description": text}] for text in ("Adds two numbers.", "Adds numbers."))
    assert units_of(before, before) == 0
    assert units_of(before, after) > 0


COSTLY = sorted((Path(__file__).parents[1] / "data" / "costly").glob("*.json"))


@pytest.mark.tier(name="adversary")
@pytest.mark.parametrize("path", COSTLY, ids=lambda path: path.stem)
def test_costly_lists_stay_within_the_bounds(path: Path) -> None:
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
        units_of(some[0], some[version])
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
