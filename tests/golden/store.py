"""The golden files: a scenario's archive and outputs in one compressed tar, and digests of much more."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from hashlib import sha256
from pathlib import Path

from tests.golden.changes import as_before
from tests.golden.outputs import Outputs

FOLDER = Path(__file__).parents[1] / "data" / "golden"
ARCHIVE = "archive.ndjson"
DIGESTS = FOLDER / "digests.json.xz"


def write(name: str, outputs: Outputs) -> None:
    """Write a scenario's files, the same bytes each time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for member, content in sorted(outputs.items()):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    (FOLDER / f"{name}.tar.xz").write_bytes(lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def read(name: str) -> Outputs:
    """A scenario's files."""
    with tarfile.open(FOLDER / f"{name}.tar.xz", "r:xz") as tar:
        return {member.name: (tar.extractfile(member) or io.BytesIO()).read() for member in tar}


def digests() -> dict[str, dict[str, str]]:
    """By group and output, the SHA-256 of what is not kept whole."""
    found: dict[str, dict[str, str]] = json.loads(lzma.decompress(DIGESTS.read_bytes()))
    return found


def write_digests(found: dict[str, dict[str, str]]) -> None:
    """Write them."""
    DIGESTS.write_bytes(lzma.compress(json.dumps(found, sort_keys=True).encode(), preset=9))


def digests_of(outputs: Outputs) -> dict[str, str]:
    """The SHA-256 of every output, deliberate changes taken back."""
    return {name: sha256(as_before(name, content)).hexdigest() for name, content in outputs.items()}
