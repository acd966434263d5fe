"""The golden files: a scenario's archive and outputs in one compressed tar, and digests of much more."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from pathlib import Path

from tests.golden.outputs import Outputs

FOLDER = Path(__file__).parents[1] / "data" / "golden"
ARCHIVE = "archive.ndjson"
DIGESTS = FOLDER / "digests.json"


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
    found: dict[str, dict[str, str]] = json.loads(DIGESTS.read_text(encoding="utf-8"))
    return found
