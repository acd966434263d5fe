"""Assay (Rul1an/assay): the tar around an evidence bundle, as bytes.

Headers are in the old GNU format, owned by ``assay``, with every number zero except mode, size and checksum, which is
byte for byte what Assay's own writer produces. The reader accepts any tar whose members are plain files without link
names, with sizes of 11 octal digits.
"""

import re
from typing import NamedTuple

from assay_stream.errors import InputError

BLOCK_BYTES = 512
TAR_END = bytes(2 * BLOCK_BYTES)
_NAME_BYTES = 100
_CHECKSUM = slice(148, 156)
_MAGICS = (b"ustar  \0", b"ustar\x0000", bytes(8))
_PLAIN_FILES = (b"\0", b"0")
_SIZE = re.compile(rb"[0-7]{11}[\0 ]")
_LINK_NAME = slice(157, 257)
_NAME_PREFIX = slice(345, BLOCK_BYTES)


class Member(NamedTuple):
    name: str
    size_bytes: int


def tar_header(member: Member) -> bytes:
    block = bytearray(BLOCK_BYTES)
    name = member.name.encode("ascii")
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[108:116] = block[116:124] = b"0000000\0"
    block[124:136] = b"%011o\0" % member.size_bytes
    block[136:148] = b"00000000000\0"
    block[257:265] = b"ustar  \0"
    block[265:270] = block[297:302] = b"assay"
    block[_CHECKSUM] = b"%07o\0" % _checksum(block)
    return bytes(block)


def tar_padding(size_bytes: int) -> bytes:
    """Return the zeros that pad a member's content to full blocks."""
    return bytes(-size_bytes % BLOCK_BYTES)


def read_tar_header(block: bytes) -> Member | None:
    """Parse a header block; ``None`` marks the end of the tar.

    Raises:
        InputError: ``bundle_member`` for anything but a plain file.
    """
    if not any(block):
        return None
    if block[257:265] not in _MAGICS or _octal(block[_CHECKSUM]) != _checksum(block):
        raise InputError("bundle_member", "a tar header is damaged")
    if block[156:157] not in _PLAIN_FILES:
        raise InputError("bundle_member", "a member of the tar is not a regular file: a bundle holds nothing else")
    name = block[:_NAME_BYTES].split(b"\0", 1)[0]
    if not _SIZE.fullmatch(block[124:136]) or not name.isascii():
        raise InputError("bundle_member", "a tar header has a name or size that no bundle has")
    if any(block[_LINK_NAME]) or any(block[_NAME_PREFIX]):
        raise InputError("bundle_member", "a tar header has a link name or a name prefix, which no bundle has")
    return Member(name=name.decode(), size_bytes=int(block[124:135], 8))


def _checksum(block: bytes | bytearray) -> int:
    return sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" ")


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else None
