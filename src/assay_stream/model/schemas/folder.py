"""The schema folder: what belongs in it, whether it is there, and the command that writes it."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from assay_stream.model.schemas.apis import asyncapi, openapi
from assay_stream.model.schemas.documents import ASYNCAPI_FILE, HTC_FILE, all_schemas
from assay_stream.schemes.handshake import htc

OPENAPI_FILE = "openapi.json"


def all_files() -> dict[str, str]:
    documents = {**all_schemas(), ASYNCAPI_FILE: asyncapi(), OPENAPI_FILE: openapi(), HTC_FILE: htc.SCHEMA}
    return {name: json.dumps(content, indent=2, ensure_ascii=False) + "\n" for name, content in documents.items()}


def differing_files(folder: Path) -> list[str]:
    """Return the names of files in a folder that are missing, stale, or no longer generated."""
    wanted = all_files()
    present = {path.name for path in folder.glob("*.json")}
    stale = {
        name for name, text in wanted.items() if name in present and (folder / name).read_text(encoding="utf-8") != text
    }
    return sorted(stale | (present ^ wanted.keys()))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m assay_stream.model.schemas",
        description="Check or write the JSON Schemas of every record, and the API documents over them.",
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", metavar="DIR", type=Path, help="Exit with 1 if a file in DIR differs.")
    action.add_argument("--write", metavar="DIR", type=Path, help="Write every file to DIR.")
    chosen = parser.parse_args(arguments)
    if chosen.write is not None:
        chosen.write.mkdir(parents=True, exist_ok=True)
        for name, text in all_files().items():
            (chosen.write / name).write_text(text, encoding="utf-8")
        return 0
    differing = differing_files(chosen.check)
    for name in differing:
        print(f"differs from the models: {chosen.check / name}", file=sys.stderr)
    if differing:
        print(f"write it: python -m assay_stream.model.schemas --write {chosen.check}", file=sys.stderr)
    return 1 if differing else 0
