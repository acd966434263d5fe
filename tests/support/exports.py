"""Records as exports read them."""

import gzip
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from assay_stream.canonical.digest import canonicalize
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.schemes.assay_tool import content_hash
from tests.support.fleet import Fleet
from tests.support.replaying import replay

NOON = "2026-03-01T12:00:00Z"
NOON_US = 1_772_366_400_000_000


def sealed(event: dict[str, Any]) -> bytes:
    """An envelope with the content hash that belongs to it, as bytes."""
    return canonicalize(event | {"assaycontenthash": str(content_hash(event))})


def evidence(number: int = 0, *, time: str = NOON, data: dict[str, Any] | None = None, **changes: Any) -> bytes:
    event = {
        "specversion": "1.0",
        "type": "assay.tool.decision",
        "source": "urn:assay-stream",
        "id": f"id-{number}",
        "time": time,
        "datacontenttype": "application/json",
        "subject": "read_file",
        "assayproducer": "assay-stream",
        "assayproducerversion": "1.2.3",
        "assaygit": "unknown",
        "assaypii": False,
        "assaysecrets": False,
        "data": {
            "server_id": "server-a",
            "observer_id": "proxy-1",
            "tool": "read_file",
            "decision": "allow",
            "reason_code": "P_OK",
            "binding": {"scope": "none"},
            "unbound_reason": "definition_not_observed",
            "pin": {"status": "unpinned"},
            "origin": {"topic": "mcp.tools.call", "partition": 3, "offset": number},
        }
        | (data or {}),
    }
    return sealed(event | changes)


def definition(name: str = "read_file", **fields: Any) -> bytes:
    return canonicalize(
        {"full_digest": "sha256:" + f"{len(name):064x}", "definition": {"name": name, "inputSchema": {}} | fields}
    )


def a_file(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def record_line(value: bytes, role: Role = Role.EVIDENCE, offset: int = 0) -> bytes:
    origin = Origin("assay.tool.decision", 0, offset).as_json()
    line = {"origin": origin, "role": role, "timestamp_ms": 0, "key": None, "headers": [], "value": value.decode()}
    return orjson.dumps(line)


def replayed(calls: int = 40) -> list[Output]:
    records = [
        Record(role=role, origin=Origin(role.value, 0, number), key=key, value=value)
        for number, (role, key, value) in enumerate(Fleet(calls=calls).history())
    ]
    return list(replay(records, producer=Producer(version="1.2.3")))


def values(outputs: list[Output], role: Role) -> list[bytes]:
    return [output.value for output in outputs if output.role is role and output.value is not None]


def members(path: Path) -> dict[str, bytes]:
    """Names and contents of a bundle's members, by Python's own reader."""
    with tarfile.open(path) as tar:
        return {member.name: (tar.extractfile(member) or io.BytesIO()).read() for member in tar}


def rebuilt(path: Path, content: Iterator[tuple[str, bytes]] | dict[str, bytes], **info: Any) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, raw in content.items() if isinstance(content, dict) else content:
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            for field, value in info.items():
                setattr(member, field, value)
            tar.addfile(member, io.BytesIO(raw))
    path.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    return path


def changed(path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    content = members(path)
    change(content)
    return rebuilt(path.with_name("changed.tar.gz"), content)
