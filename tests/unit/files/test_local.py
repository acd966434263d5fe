"""Files written aside, folders that one run at a time writes to, and TOML that operators write."""

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from assay_stream.errors import AssayStreamError, ConfigurationError, InputError, OperatingError
from assay_stream.files.local import PREFIX, Aside, config_of, locked_folder, reading, writing, writing_to
from tests.support.disk import synced_sizes
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


def test_a_file_takes_one_run_at_a_time(tmp_path: Path) -> None:
    """Two would write into each other's half of it, and the first to end would put that in place."""
    target = tmp_path / "out"
    with Aside() as aside:
        aside.path(target).write_text("first")
        with raises_code("output_in_use", kind=ConfigurationError), Aside() as other:
            other.path(target)
    with Aside() as aside:
        aside.path(target)
    assert target.read_text() == ""


def test_a_run_that_was_killed_leaves_nothing_in_the_next_one(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}out").write_text("left over\n")
    with Aside() as aside, aside.path(tmp_path / "out").open("a") as file:
        file.write("new\n")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"out": "new\n"}


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    """As /dev/stdout, which leads to whatever file a shell redirects the output to."""
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_text("old")
    with Aside() as aside:
        aside.path(tmp_path / "link").write_text("new")
        aside.remove(tmp_path / "link")
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "link").is_symlink()


def test_a_new_file_has_its_permissions_from_the_first_byte_on(tmp_path: Path) -> None:
    with Aside() as aside:
        assert aside.path(tmp_path / "secret", mode=0o600).stat().st_mode & 0o777 == 0o600


def test_files_are_on_the_disk_before_they_take_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power failure leaves the old file or the new one."""
    on_disk = synced_sizes(monkeypatch)
    with Aside() as aside:
        aside.path(tmp_path / "new").write_text("new")
    assert on_disk[(tmp_path / "new").stat().st_ino] == len("new")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"servers:\n  - server_id: docs\n", "line 1: not TOML. YAML and JSON are not read"),
        (b"# of ours\nservers:\n", "line 2: "),
        (b'{"servers": []}', "line 1: "),
        (b"servers = [", "line 1: not TOML"),
        (b"a = 1\n[[clients]]\nhosts = [\n", "line 3: not TOML"),
        (b"a = 1\na = 2", "not TOML"),
        pytest.param(b"a = " + b"[" * 50_000, "not TOML", id="deep"),
        pytest.param(b"a = " + b"1" * 5_000, "not TOML", id="long number"),
        (b"secret-\xff", "byte 7"),
        pytest.param(b"#" * 20_000_000, "over 8388608 bytes", id="large"),
    ],
)
def test_what_is_no_toml_is_refused_and_not_quoted(raw: bytes, said: str) -> None:
    with raises_code("bad_servers", kind=ConfigurationError) as caught:
        config_of(raw, "servers.toml", "bad_servers")
    assert caught.value.message.startswith("servers.toml: ")
    assert said in caught.value.message
    assert "secret" not in caught.value.message


def test_what_is_toml_is_decoded() -> None:
    raw = b'[[servers]]\nserver_id = "docs"\n'
    assert config_of(raw, "servers.toml", "bad_servers") == {"servers": [{"server_id": "docs"}]}


@pytest.mark.parametrize(("block", "is_folder_wanted"), [(writing_to, True), (reading, False), (writing, False)])
def test_a_file_in_place_of_a_folder_is_named_where_a_folder_is_wanted(
    tmp_path: Path, block: Callable[[Path], AbstractContextManager[None]], is_folder_wanted: bool
) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError) as failed, block(file / "below"):
        (file / "below").mkdir()
    assert ("name a folder" in failed.value.message) is is_folder_wanted


@pytest.mark.parametrize(
    ("block", "number", "kind"),
    [
        (writing, errno.ENOSPC, OperatingError),
        (writing_to, errno.EIO, OperatingError),
        (writing, errno.EACCES, InputError),
        (reading, errno.EIO, InputError),
    ],
)
def test_a_disk_that_fails_is_nobodys_mistake(
    tmp_path: Path, block: Callable[[Path], AbstractContextManager[None]], number: int, kind: type[AssayStreamError]
) -> None:
    """Exit code 3, as where standard output leads to a full disk: the command may succeed later."""
    with pytest.raises(kind, match=r"file: \w+"), block(tmp_path / "file"):
        raise OSError(number, os.strerror(number))
