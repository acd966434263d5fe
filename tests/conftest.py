"""Fixtures that start real parts: Apache Kafka once a session, a deployment with its own topics per test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from deploy.local.kafka import Broker
from tests.support.deployment import Deployment

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One Apache Kafka broker on loopback, started on first use."""
    with Broker() as running:
        yield running


@pytest.fixture
async def deployment(broker: Broker) -> AsyncIterator[Deployment]:
    """A deployment of its own on the shared broker: topics applied, no worker running."""
    number = next(_numbers)
    made = Deployment(broker.bootstrap, name=f"test{number}")
    await made.apply_topics()
    try:
        yield made
    finally:
        made.stop_workers()
