"""The stores that consoles under test show."""

from pathlib import Path

import pytest

from tests.support.console import a_store, hostile
from tests.support.readmodel import history


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_store(tmp_path_factory.mktemp("fleet"), history())


@pytest.fixture(scope="module")
def attacks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_store(tmp_path_factory.mktemp("attacks"), hostile())
