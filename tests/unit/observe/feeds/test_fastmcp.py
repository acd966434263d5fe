"""FastMCP's feed where FastMCP is not; what it does where it is, tests/integration/test_gateways.py shows."""

from __future__ import annotations

import importlib

import pytest

from assay_stream.errors import ConfigurationError


def test_the_extra_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"extra_missing: .*pip install '\.\[fastmcp\]'"):
        importlib.import_module("assay_stream.observe.feeds.fastmcp")
