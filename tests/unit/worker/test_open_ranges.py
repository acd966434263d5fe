"""What a sealer refuses to go on from."""

from typing import Any

import pytest

from assay_stream.errors import IntegrityError
from assay_stream.worker.open_ranges import OpenRange, check_siblings
from tests.support.seals import Fleet


@pytest.mark.parametrize(("checkpoints", "goes_on"), [(2, True), (1, False), (0, False)])
def test_a_sealer_does_not_go_on_where_a_sibling_knows_of_more(checkpoints: int, goes_on: bool) -> None:
    """Sealing on would heal the cut over: it ends, and names both partitions."""
    fleet = Fleet(2)
    for partition in (0, 0, 1):
        fleet.grow(partition, 2)
        fleet.seal(partition)
    left = fleet.chains[0][:checkpoints]
    writer: Any = None
    ranges = {
        0: OpenRange(partition=0, writer=writer, before=left[-1].checkpoint if left else None),
        1: OpenRange(partition=1, writer=writer, before=fleet.chains[1][-1].checkpoint),
    }
    if goes_on:
        check_siblings(ranges)
        return
    with pytest.raises(IntegrityError, match="partition 1 was sealed after 4 records of partition 0") as caught:
        check_siblings(ranges)
    assert caught.value.code == "checkpoints_cut_off"
