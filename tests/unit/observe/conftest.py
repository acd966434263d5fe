"""What tests of the observer begin with."""

import pytest

from tests.support.mcp_dialogue import Dialogue


@pytest.fixture
def talk() -> Dialogue:
    return Dialogue()
