"""ContextForge's feed where ContextForge is not; what it does where it is, tests/integration/test_gateways.py shows."""

from __future__ import annotations

import importlib

import pytest

from assay_stream.errors import ConfigurationError


def test_the_extra_that_is_missing_is_named() -> None:
    """With the command that installs it."""
    with pytest.raises(ConfigurationError, match=r"extra_missing: .*pip install '\.\[contextforge\]'"):
        importlib.import_module("assay_stream.observe.feeds.contextforge")
