"""Workers of two releases in one group."""

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from assay_stream import __version__
from assay_stream.model.record import Role
from tests.support.deployment import Deployment, waits_for

pytestmark = pytest.mark.kafka


async def test_a_worker_beside_one_of_another_release_waits_and_names_both(deployment: Deployment) -> None:
    """In one line: which release it is, which the other is, how they differ. When the other is gone it begins."""
    group = f"{deployment.settings.group_prefix}-join"
    async with AIOKafkaConsumer(
        deployment.topics[Role.CALLS],
        bootstrap_servers=deployment.bootstrap,
        group_id=group,
        client_id="assay-stream-0.0.9",
        partition_assignment_strategy=(RangePartitionAssignor,),
    ):
        worker = deployment.start_worker("--role", "join")
        why = await waits_for(worker, f"other_release: this is assay-stream-{__version__}")
    for part in (group, "assay-stream-0.0.9 at 127.0.0.1", "by range and not by assay-sticky", "waits until they"):
        assert part in why
    await worker.wait_ready()
