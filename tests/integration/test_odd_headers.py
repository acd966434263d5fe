"""Headers that Kafka allows and few clients send, on a real broker: they stop no worker."""

from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.producer import message_accumulator, producer as producer_module
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from assay_stream.model.record import Role
from tests.support.deployment import Deployment
from tests.support.fleet import START, a_call_by, a_listing

pytestmark = pytest.mark.kafka

NAME = b"\xffname"


class OddName(str):
    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        return NAME


async def test_names_that_are_no_utf8_and_null_values_stop_no_worker(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sound call is joined and a broken one is refused, whatever their headers are."""
    for module in (message_accumulator, producer_module):
        monkeypatch.setattr(module, "DefaultRecordBatchBuilder", _DefaultRecordBatchBuilderPy)
    odd: list[list[tuple[str, Any]]] = [[(OddName(), b"1")], [("content-type", None)], [("x", None)]]
    async with AIOKafkaProducer(bootstrap_servers=deployment.bootstrap) as producer:
        for role, key, value in (a_listing(0, 0, 0, 0, START), a_call_by(0, 0, 0, START, None)):
            for headers in odd:
                await producer.send_and_wait(deployment.topics[role], value, key=key, headers=headers)
                await producer.send_and_wait(deployment.topics[role], b"{", key=key, headers=headers)
    worker = deployment.start_worker()
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == len(odd))
    rejected = await deployment.wait_for(Role.REJECTED, lambda records: len(records) == 2 * len(odd))
    names = [name for record in rejected for name, _ in record.headers]
    assert names.count("?name") == names.count("content-type") == names.count("x") == 2
    assert worker.terminate() == 0
