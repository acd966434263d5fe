"""Files written aside, and folders that one run at a time writes to."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from assay_stream.errors import ConfigurationError
from assay_stream.files.local import Aside, locked_folder


def test_a_folder_takes_one_run_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with locked_folder(folder):
        with pytest.raises(ConfigurationError) as caught, locked_folder(folder):
            pass
        assert caught.value.code == "output_in_use"
        assert os.listdir(folder) == []
    with locked_folder(folder):
        pass


def test_files_take_their_places_together_or_not_at_all(tmp_path: Path) -> None:
    old, new, stale = (tmp_path / name for name in ("old", "new", "stale"))
    old.write_text("old")
    stale.write_text("stale")
    with suppress(ZeroDivisionError), Aside() as aside:
        aside.path(old).write_text("new")
        aside.remove(stale)
        raise ZeroDivisionError
    assert sorted(os.listdir(tmp_path)) == ["old", "stale"]
    assert old.read_text() == "old"
    with Aside() as aside:
        aside.path(old).write_text("new")
        aside.path(new).write_text("new")
        aside.remove(stale)
        aside.remove(new)
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]
