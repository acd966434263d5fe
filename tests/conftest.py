"""Fixtures that start real parts: Apache Kafka once a session, a deployment with its own topics per test."""

import gc
import itertools
import os
from collections.abc import AsyncIterator, Generator, Iterator

import pytest
from hypothesis import settings

from deploy.local import kafka
from deploy.local.kafka import QUICK_START, Broker
from deploy.local.secured import SecuredBroker
from tests.support.deployment import Deployment
from tests.support.secured import USERS, password_of
from tests.support.warm import install

# A busy machine is no reason to fail. CI judges a change by the same examples every time. `make laws` tries more.
_EXAMPLES = int(os.environ.get("ASSAY_TEST_EXAMPLES", "25"))
settings.register_profile("everywhere", deadline=None, max_examples=_EXAMPLES)
settings.register_profile("ci", parent=settings.get_profile("everywhere"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "everywhere")

install()


def pytest_configure(config: pytest.Config) -> None:
    """Give each test process ports of its own: one that another has chosen looks free until it is used."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        number = int(worker["workerid"].removeprefix("gw"))
        kafka.PORTS = kafka.PORTS[number :: worker["workercount"]]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Take what is imported and collected out of garbage collection, meanwhile and later: it lives until the end."""
    gc.disable()
    collected = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return collected


def pytest_sessionfinish() -> None:
    """Let the interpreter tear down what was frozen, or extensions report leaks."""
    gc.unfreeze()


_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One Apache Kafka broker on loopback, started on first use."""
    with Broker(options=QUICK_START) as running:
        yield running


@pytest.fixture(scope="session")
def secured() -> Iterator[SecuredBroker]:
    """One broker with a secured listener, started on first use, that knows a user for each role."""
    with SecuredBroker({user: password_of(user) for user in USERS}) as running:
        yield running


@pytest.fixture
async def deployment(broker: Broker) -> AsyncIterator[Deployment]:
    """A deployment of its own on the shared broker: topics applied, no worker running."""
    number = next(_numbers)
    with Deployment(broker.bootstrap, name=f"test{number}") as made:
        await made.apply_topics()
        yield made
