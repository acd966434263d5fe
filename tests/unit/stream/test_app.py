"""A worker put together from its settings."""

from __future__ import annotations

from assay_stream.config import load_settings
from assay_stream.core.record import Role
from assay_stream.stream.app import WorkerBuilder


async def test_the_setting_reaches_the_join() -> None:
    """ASSAY_STREAM_CALL_PROFILE is what the join holds every call to."""
    for profile in ("assay", "handshake"):
        builder = WorkerBuilder(load_settings(call_profile=profile), frozenset({"join"}), dict.fromkeys(Role, 1))
        _, task = builder._join()
        assert task._stage._state.call_profile == profile
