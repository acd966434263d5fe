"""The names that every observation carries."""

from __future__ import annotations

import pytest

from assay_stream.errors import ConfigurationError
from assay_stream.observe import Vantage


def test_the_source_is_a_urn_with_the_observer_percent_encoded() -> None:
    """Any observer name makes a URI."""
    vantage = Vantage(server_id="s", observer_id="edge 1/Zürich")
    assert vantage.source == "urn:assay-stream:observer:edge%201%2FZ%C3%BCrich"


@pytest.mark.parametrize("name", ["", "  ", "x" * 1_025, "\ud800"])
def test_a_name_that_no_record_may_carry_is_refused_at_once(name: str) -> None:
    """Otherwise every record would be refused later."""
    with pytest.raises(ConfigurationError, match="bad_identifier"):
        Vantage(server_id=name, observer_id="o")


def test_an_observer_whose_uri_would_be_too_long_is_refused() -> None:
    """Percent encoding can triple a name."""
    with pytest.raises(ConfigurationError, match="shorten"):
        Vantage(server_id="s", observer_id="ü" * 1_000)
