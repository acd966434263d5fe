"""The key files of seals."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_stream.errors import InputError
from assay_stream.files.seal_files import read_private_key, read_public_keys
from assay_stream.schemes.tlog import keys_of, private_pem
from tests.support.seals import KEY, OTHER_KEY, write_keys


def test_keys_are_read(tmp_path: Path) -> None:
    write_keys(tmp_path)
    write_keys(tmp_path, "other", OTHER_KEY)
    assert read_private_key(tmp_path / "seal.pem", "").private_bytes_raw() == KEY.private_bytes_raw()
    found = read_public_keys([tmp_path / "seal.pub.pem", tmp_path / "other.pub.pem"])
    assert found.keys() == keys_of([KEY.public_key(), OTHER_KEY.public_key()]).keys()


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_a_key_may_be_read_by_its_owner_and_group(mode: int, tmp_path: Path) -> None:
    (tmp_path / "seal.pem").write_bytes(private_pem(KEY, b"secret"))
    (tmp_path / "seal.pem").chmod(mode)
    assert read_private_key(tmp_path / "seal.pem", "secret").private_bytes_raw() == KEY.private_bytes_raw()


def test_what_is_no_key_file_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no key")
    (tmp_path / "text").chmod(0o600)
    for name, code in (("", "unreadable_file"), ("none", "seal_key_missing"), ("text", "bad_seal_key")):
        for read in (lambda path: read_private_key(path, None), lambda path: read_public_keys([path])):
            with pytest.raises(InputError) as caught:
                read(tmp_path / name)
            assert caught.value.code == code
            assert str(tmp_path / name) in caught.value.message
