"""The digest of everything that detection decides by: rules, phrases, relations, concepts and weights."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from importlib.resources.abc import Traversable
from typing import Final

from assay_stream.canonical.digest import jcs_digest
from assay_stream.detect.catalog import DATA, reading


def _files(folder: Traversable, path: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = f"{path}{entry.name}"
        if entry.is_dir():
            yield from _files(entry, f"{name}/")
        elif name.endswith((".toml", ".tsv")):
            with reading(name):
                content = entry.read_bytes()
            yield name, content


def digest_of(data: Traversable) -> str:
    """Return the digest of a folder of detection data: of the canonical object of file names and their SHA-256."""
    return str(jcs_digest({name: sha256(content).hexdigest() for name, content in _files(data)}))


RULES_DIGEST: Final = digest_of(DATA)
"""Part of every finding of the registry, so that a replay by other rules is explained."""
