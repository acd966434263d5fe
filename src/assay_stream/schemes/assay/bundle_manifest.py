"""Assay (Rul1an/assay): ``manifest.json`` of an evidence bundle, written and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import Digest, canonicalize
from assay_stream.errors import InputError
from assay_stream.limits import BUNDLE_LIMITS, BundleLimits, Limits

MANIFEST_NAME = "manifest.json"
EVENTS_NAME = "events.ndjson"
SCHEMA_VERSION = 1
ALGORITHMS = {"canon": "jcs-rfc8785", "hash": "sha256", "root": 'sha256(concat(content_hash + "\\n"))'}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a bundle says of itself.

    Args:
        run_id: the run that its events name.
        event_count: how many there are.
        run_root: digest over their content hashes, in order; also the bundle's id.
        producer: who made the events: ``name``, ``version`` and, where it is known, ``git``.
        events_digest: digest of ``events.ndjson``.
        events_bytes: its size.
    """

    run_id: str
    event_count: int
    run_root: Digest
    producer: Mapping[str, str]
    events_digest: Digest
    events_bytes: int

    def encode(self) -> bytes:
        return canonicalize(
            {
                "schema_version": SCHEMA_VERSION,
                "bundle_id": str(self.run_root),
                "producer": dict(self.producer),
                "run_id": self.run_id,
                "event_count": self.event_count,
                "run_root": str(self.run_root),
                "algorithms": ALGORITHMS,
                "files": {
                    EVENTS_NAME: {"path": EVENTS_NAME, "sha256": str(self.events_digest), "bytes": self.events_bytes}
                },
            }
        )


def read_manifest(raw: bytes, *, limits: BundleLimits = BUNDLE_LIMITS) -> Manifest:
    """Return what ``manifest.json`` says. Members that it does not need are left aside, as Assay does.

    Raises:
        InputError: ``bundle_manifest`` or ``bundle_limit``.
    """
    try:
        content = decode_json(
            raw, limits=Limits(record_bytes_max=limits.manifest_bytes_max, depth_max=limits.depth_max)
        )
    except InputError as error:
        raise InputError("bundle_manifest", f"{MANIFEST_NAME}: {error.message}", path=error.path) from None
    if _member(content, "schema_version", int) != SCHEMA_VERSION:
        raise _wrong("schema_version", f"must be {SCHEMA_VERSION}")
    algorithms = _member(content, "algorithms", dict)
    if {name: algorithms.get(name) for name in ALGORITHMS} != ALGORITHMS:
        raise _wrong("algorithms", "must be those of version 1")
    files = _member(content, "files", dict)
    if list(files) != [EVENTS_NAME]:
        raise _wrong("files", f"must name {EVENTS_NAME} and nothing else")
    entry = _member(files, EVENTS_NAME, dict)
    if entry.get("path") != EVENTS_NAME:
        raise _wrong("files", f"the path must be {EVENTS_NAME}")
    count = _member(content, "event_count", int)
    if count < 1:
        raise _wrong("event_count", "a bundle has one event at least")
    if count > limits.events_max:
        raise InputError("bundle_limit", f"{MANIFEST_NAME} names over {limits.events_max} events")
    root = _digest(content, "run_root")
    if _member(content, "bundle_id", str) != str(root):
        raise _wrong("bundle_id", "must be the run root")
    producer = _member(content, "producer", dict)
    if not all(isinstance(value, str | None) for value in producer.values()):
        raise _wrong("producer", "its members are texts")
    return Manifest(
        run_id=_member(content, "run_id", str),
        event_count=count,
        run_root=root,
        producer={name: value for name, value in producer.items() if value is not None},
        events_digest=_digest(entry, "sha256"),
        events_bytes=_member(entry, "bytes", int),
    )


def _member(content: Any, name: str, kind: type) -> Any:
    value = content.get(name) if isinstance(content, dict) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(name, f"is missing or no {_KINDS[kind]}")
    return value


_KINDS: dict[type, str] = {int: "whole number", str: "text", dict: "object"}


def _digest(content: dict[str, Any], name: str) -> Digest:
    text = _member(content, name, str)
    try:
        # Assay reads a bare digest too.
        return Digest.parse(text if text.startswith("sha256:") else f"sha256:{text}")
    except InputError as error:
        raise _wrong(name, error.message) from None


def _wrong(name: str, what: str) -> InputError:
    return InputError("bundle_manifest", f"{MANIFEST_NAME}: {what}", path=f"$.{name}")
