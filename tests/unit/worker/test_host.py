"""A worker put together from its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_stream.config import load_settings
from assay_stream.errors import OperatingError
from assay_stream.model.record import Role
from assay_stream.worker.app import WorkerBuilder
from assay_stream.worker.host import _make_state_dir
from assay_stream.worker.join import JoinStage


async def test_the_setting_reaches_the_join() -> None:
    """ASSAY_STREAM_CALL_PROFILE is what the join holds every call to."""
    for profile in ("assay", "handshake"):
        builder = WorkerBuilder(load_settings(call_profile=profile), frozenset({"join"}), dict.fromkeys(Role, 1))
        _, task = builder._join()
        assert isinstance(task._stage, JoinStage)
        assert task._stage._state.call_profile == profile


async def test_a_state_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """Where Faust's folders cannot be made the worker names the setting, and a restart may help."""
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    settings = load_settings(state_dir=in_the_way / "state")
    app = WorkerBuilder(settings, frozenset({"join"}), dict.fromkeys(Role, 1)).app
    with pytest.raises(OperatingError, match="ASSAY_STREAM_STATE_DIR") as refused:
        _make_state_dir(settings, app)
    assert refused.value.code == "state_dir_unusable"
