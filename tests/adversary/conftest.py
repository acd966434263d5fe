"""One deployment with one worker for all rows: what one hostile server leaves behind must not help the next."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from deploy.local.kafka import Broker
from tests.support.deployment import Deployment, Worker

PATIENT = {"ASSAY_STREAM_SESSION_TIMEOUT_MS": "30000"}
"""Settings of a worker that keeps its partitions on a machine that is busy with other work too."""


@dataclass(frozen=True)
class Arena:
    """Where hostile servers meet honest ones.

    Args:
        deployment: its topics.
        worker: its only worker, of all stages.
    """

    deployment: Deployment
    worker: Worker


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with ThreadPoolExecutor(1) as beside:
        beside.submit(lambda: asyncio.run(work())).result()


@pytest.fixture(scope="package")
def arena(broker: Broker) -> Iterator[Arena]:
    with Deployment(broker.bootstrap, name="adversary") as deployment:
        _run(deployment.apply_topics)
        worker = deployment.start_worker(**PATIENT)
        _run(worker.wait_ready)
        yield Arena(deployment, worker)
