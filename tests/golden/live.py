"""The golden deployment's topics, half-way and in the end, and what commands make of them as files."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from tests.golden import store
from tests.golden.changes import as_today
from tests.golden.outputs import Outputs, printed

NAME = "live"
REPORTS = "live-reports"
SEED, STEPS = 31_001, 120
"""Of the history that was published; the first half before a restart of the worker, the rest after it."""

_PARTITIONS = ("--snapshot-partitions", "3")
_KEY = ("--key", "seal.pub.pem")
_SEALS = ("--evidence", "sealed", "--checkpoints", "sealed")


def unpacked(folder: Path) -> Outputs:
    """The golden topics, written to a folder as well."""
    files = store.read(NAME)
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(as_today(name, content))
    return files


def reports(folder: Path) -> Outputs:
    """What commands print and write about the golden deployment.

    Args:
        folder: an empty folder to work in.
    """
    files = unpacked(folder)
    evidence = _each("--evidence", files, "sealed/evidence")
    inputs = _each("--input", files, "archive/")
    recorded = ("--format", "json", *evidence, *inputs)
    server = ("--server-id", "web")
    with contextlib.chdir(folder):
        outputs = {"again/summary.json": printed("replay", *inputs, *_PARTITIONS, "--output", "again")}
        outputs |= {f"again/{path.name}": path.read_bytes() for path in sorted(Path("again").iterdir())}
        alerts = _each("--alerts", files, "end/alerts-")
        outputs["compare.json"] = printed("compare", *recorded, *alerts, *_PARTITIONS)
        outputs["verify.json"] = printed("verify", *recorded, "--all")
        outputs["verify-strict.json"] = printed("verify", *recorded, "--strict", "--expect", "all")
        at = ("--at", "2026-06-01T00:00:00Z")
        outputs["asof.json"] = printed("asof", *server, *at, *inputs, "--format", "json")
        outputs["timeline.json"] = printed("timeline", *server, *inputs, "--format", "json")
        command = ("export", "assay-bundle", *_each("--input", files, "sealed/evidence"), "--output", "b.tar.gz")
        outputs["bundle.json"] = printed(*command, "--split", "25")
        for path in sorted(Path().glob("b*.tar.gz")):
            outputs[path.name] = path.read_bytes()
            outputs[f"{path.name}.verified.json"] = printed("bundle", "verify", path.name)
        return outputs | _seals(files)


def _seals(files: Outputs) -> Outputs:
    arguments = (*_KEY, *_SEALS, "--format", "json")
    outputs = {"seal-verify.json": printed("seal", "verify", *arguments, "--write-head", "head.json")}
    outputs["head.json"] = _read("head.json")
    outputs["seal-expected.json"] = printed("seal", "verify", *arguments, "--expect", "head.json")
    for partition in ("0", "1"):
        line = files[f"sealed/evidence-{partition}.ndjson"].splitlines(keepends=True)[9]
        Path("record.ndjson").write_bytes(line)
        offset = str(json.loads(line)["origin"]["offset"])
        prove = ("seal", "prove", *_KEY, *_SEALS[2:], "--partition", partition)
        printed(*prove, "--offset", offset, "--output", f"proof-{partition}.json")
        printed(*prove, "--consistency", "0", "2", "--output", f"consistency-{partition}.json")
        for kind, record in (("proof", ("--record", "record.ndjson")), ("consistency", ())):
            name = f"{kind}-{partition}.json"
            outputs[name] = _read(name)
            outputs[f"{name}.checked"] = printed("seal", "check-proof", name, *_KEY, *record)
    return outputs


def _read(name: str) -> bytes:
    """A file that a command should have written."""
    path = Path(name)
    return path.read_bytes() if path.exists() else b"was not written"


def _each(option: str, files: Outputs, prefix: str) -> tuple[str, ...]:
    found = sorted(name for name in files if name.startswith(prefix) and name.endswith(".ndjson"))
    return tuple(part for name in found for part in (option, name))
