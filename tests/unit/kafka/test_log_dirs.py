"""What brokers tell of their disks. On real Kafka: tests/integration/test_keyed.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion, KafkaTimeoutError, UnknownError

from assay_stream.kafka.log_dirs import _DescribeLogDirs, disk_free_bytes


def disk(usable_bytes: int, error_code: int = 0) -> tuple[Any, ...]:
    """A disk in an answer."""
    return (error_code, "/var/lib/kafka", [], 10**12, usable_bytes, {})


class Brokers:
    """Brokers by id, each with what it answers, or the error that asking it raises."""

    def __init__(self, *answers: object) -> None:
        self._answers = answers

    async def describe_cluster(self) -> dict[str, Any]:
        """Name them."""
        return {"brokers": [{"node_id": number} for number in range(len(self._answers))]}

    async def _send_request_to_node(self, number: int, _: object) -> object:
        answer = self._answers[number]
        if isinstance(answer, Exception):
            raise answer
        return answer


def tells(*disks: tuple[Any, ...], error_code: int = 0) -> SimpleNamespace:
    """An answer with some disks."""
    return SimpleNamespace(error_code=error_code, log_dirs=list(disks))


@pytest.mark.parametrize(
    ("answers", "free"),
    [
        ([tells(disk(7))], 7),
        ([tells(disk(7), disk(5)), tells(disk(20))], 15),
        ([tells(disk(7), disk(0, error_code=56))], 7),
        ([tells(disk(7)), tells(disk(-1))], None),
        ([tells(disk(7)), tells(error_code=31)], None),
        ([tells(disk(7)), IncompatibleBrokerVersion()], None),
        ([tells(disk(7)), NotImplementedError()], None),
        ([], None),
    ],
)
async def test_the_fullest_disk_decides(answers: list[object], free: int | None) -> None:
    """Replicas are spread evenly; a disk that failed takes none; a broker that tells nothing leaves it open."""
    admin: Any = Brokers(*answers)
    assert await disk_free_bytes(admin) == free


@pytest.mark.parametrize(
    ("answer", "raised"), [(tells(error_code=-1), UnknownError), (TimeoutError(), KafkaTimeoutError)]
)
async def test_another_error_of_a_broker_is_raised(answer: object, raised: type[Exception]) -> None:
    """It must not look as if nobody knew."""
    admin: Any = Brokers(answer)
    with pytest.raises(raised):
        await disk_free_bytes(admin)


def test_an_answer_is_read_as_version_4_of_the_message_definition_has_it() -> None:
    """After throttle time and error: disks, with the topics on each, then total and usable bytes (KIP-827)."""
    request = _DescribeLogDirs().prepare({35: (1, 4)})
    assert (request.API_KEY, request.API_VERSION, request.FLEXIBLE_VERSION) == (35, 4, True)
    assert request.encode() == b"\x01\x00"
    answer = request.RESPONSE_TYPE.decode(
        b"\x00\x00\x00\x00\x00\x00\x02\x00\x00\x03/a"
        + b"\x02\x02t\x02\x00\x00\x00\x01" + (9).to_bytes(8, "big") + (0).to_bytes(8, "big") + b"\x00\x00\x00"
        + (100).to_bytes(8, "big") + (60).to_bytes(8, "big") + b"\x00\x00"
    )  # fmt: skip
    ((error_code, log_dir, topics, total_bytes, usable_bytes, _),) = answer.log_dirs
    assert (error_code, log_dir, total_bytes, usable_bytes) == (0, "/a", 100, 60)
    assert topics == [("t", [(1, 9, 0, False, {})], {})]
