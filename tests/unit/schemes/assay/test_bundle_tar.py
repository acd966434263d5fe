"""The tar around a bundle, held against Python's own."""

from __future__ import annotations

import tarfile
from typing import Literal

import pytest

from assay_stream.errors import InputError
from assay_stream.schemes.assay.bundle import Member, read_tar_header, tar_header, tar_padding

MEMBER = Member("events.ndjson", 1_234_567)


def test_another_reader_reads_our_header() -> None:
    info = tarfile.TarInfo.frombuf(tar_header(MEMBER), "ascii", "strict")
    assert (info.name, info.size, info.mode, info.mtime) == ("events.ndjson", 1_234_567, 0o644, 0)
    assert (info.uid, info.gid, info.uname, info.gname, info.isreg()) == (0, 0, "assay", "assay", True)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT])
def test_we_read_the_headers_of_others(form: Literal[0, 1]) -> None:
    info = tarfile.TarInfo("events.ndjson")
    info.size = 1_234_567
    assert read_tar_header(info.tobuf(form)) == MEMBER
    assert read_tar_header(tar_header(MEMBER)) == MEMBER


def test_zeros_are_the_end() -> None:
    """A block of zeros announces nothing."""
    assert read_tar_header(bytes(512)) is None


@pytest.mark.parametrize("position", [0, 130, 150, 156, 260])
def test_a_damaged_header_is_refused(position: int) -> None:
    block = bytearray(tar_header(MEMBER))
    block[position] ^= 1
    with pytest.raises(InputError) as caught:
        read_tar_header(bytes(block))
    assert caught.value.code == "bundle_member"


def test_a_size_beyond_octal_is_refused() -> None:
    info = tarfile.TarInfo("events.ndjson")
    info.size = 2**40
    with pytest.raises(InputError) as caught:
        read_tar_header(info.tobuf(tarfile.GNU_FORMAT))
    assert caught.value.code == "bundle_member"


@pytest.mark.parametrize(("size_bytes", "zeros"), [(0, 0), (1, 511), (512, 0), (513, 511)])
def test_content_is_filled_up_to_blocks(size_bytes: int, zeros: int) -> None:
    assert tar_padding(size_bytes) == bytes(zeros)


def altered(where: slice, content: bytes) -> bytes:
    """Our header with other bytes in a field, and the checksum that belongs to them."""
    block = bytearray(tar_header(MEMBER))
    block[where] = content
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    "size",
    [b"    4553207\0", b"4553207\0\0\0\0\0", b"\0\0\0\0\0\0\0\0\0\0\0\0", b"000045532077", b"00004553208\0"],
    ids=["blanks", "short", "empty", "twelve digits", "not octal"],
)
def test_a_size_that_is_not_eleven_octal_digits_is_refused(size: bytes) -> None:
    """Readers differ in what they make of it, so Assay refuses it, and so do we."""
    with pytest.raises(InputError) as caught:
        read_tar_header(altered(slice(124, 136), size))
    assert caught.value.code == "bundle_member"


@pytest.mark.parametrize("start", [157, 251, 345, 506], ids=["link", "its end", "prefix", "its end and padding"])
def test_a_plain_file_with_a_link_name_or_prefix_is_refused(start: int) -> None:
    """In a plain file the fields are room for what no digest covers."""
    with pytest.raises(InputError) as caught:
        read_tar_header(altered(slice(start, start + 6), b"hidden"))
    assert caught.value.code == "bundle_member"
    assert "link name or a name prefix" in caught.value.message
