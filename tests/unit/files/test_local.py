"""Files written aside, folders that one run at a time writes to, and TOML that operators write."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.local import Aside, decode_toml, locked_folder, reading, writing, writing_to
from tests.support.errors import raises_code


def test_a_folder_takes_one_run_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with locked_folder(folder):
        with raises_code("output_in_use", kind=ConfigurationError), locked_folder(folder):
            pass
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


@pytest.mark.parametrize(
    ("raw", "code", "said"),
    [
        (b"servers:\n  - server_id: docs\n", "not_toml", "line 1: not TOML. YAML and JSON are not read"),
        (b"# of ours\nservers:\n", "not_toml", "line 2: "),
        (b'{"servers": []}', "not_toml", "line 1: "),
        (b"servers = [", "not_toml", "not TOML"),
        (b"a = 1\na = 2", "not_toml", "not TOML"),
        pytest.param(b"a = " + b"[" * 50_000, "not_toml", "not TOML", id="deep"),
        pytest.param(b"a = " + b"1" * 5_000, "not_toml", "not TOML", id="long number"),
        (b"secret-\xff", "not_utf8", "byte 7"),
        pytest.param(b"#" * 20_000_000, "too_large", "allowed", id="large"),
    ],
)
def test_what_is_no_toml_is_refused_and_not_quoted(raw: bytes, code: str, said: str) -> None:
    with raises_code(code) as caught:
        decode_toml(raw)
    assert said in caught.value.message
    assert "secret" not in caught.value.message


def test_what_is_toml_is_decoded() -> None:
    assert decode_toml(b'[[servers]]\nserver_id = "docs"\n') == {"servers": [{"server_id": "docs"}]}


@pytest.mark.parametrize(("block", "is_folder_wanted"), [(writing_to, True), (reading, False), (writing, False)])
def test_a_file_in_place_of_a_folder_is_named_where_a_folder_is_wanted(
    tmp_path: Path, block: Callable[[Path], AbstractContextManager[None]], is_folder_wanted: bool
) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError) as failed, block(file / "below"):
        (file / "below").mkdir()
    assert ("name a folder" in failed.value.message) is is_folder_wanted
