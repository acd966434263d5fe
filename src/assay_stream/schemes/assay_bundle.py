"""Assay (Rul1an/assay): the evidence bundle, version 1: manifest, events, tar, and its verifier's rules.

A bundle is a tar of ``manifest.json`` and ``events.ndjson``, in this order, in gzip. Every byte of it follows from its
events. Run id and sequence belong to the bundle: they are assigned when it is written, and the content hash of an event
does not cover them.

Rules: at least one event; ``assayseq`` counts from 0 without gaps; a single run id, without a colon, equal to the
manifest's; a single source, a URI; ``id`` is ``run id:sequence``; each content hash belongs to its event; the run root
is over the content hashes in order; size and digest of ``events.ndjson`` are the manifest's. The digest covers
everything; a content hash does not cover ``id``, ``time``, ``source``, the producer and the trace.

Headers are in the old GNU format, owned by ``assay``, with every number zero except mode, size and checksum, which is
byte for byte what Assay's own writer produces. The reader accepts any tar whose members are plain files without link
names, with sizes of 11 octal digits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from assay_stream.canonical.decode import Members, decode_json
from assay_stream.canonical.digest import Digest, canonicalize
from assay_stream.errors import InputError, named_in_errors
from assay_stream.limits import BUNDLE_LIMITS, BundleLimits, Limits
from assay_stream.schemes.assay_tool import content_hash, hash_mismatch

MANIFEST_NAME = "manifest.json"
EVENTS_NAME = "events.ndjson"
SCHEMA_VERSION = 1
ALGORITHMS = {"canon": "jcs-rfc8785", "hash": "sha256", "root": 'sha256(concat(content_hash + "\\n"))'}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Bundle metadata.

    Args:
        run_root: digest over the content hashes of the events, in order; also the bundle's id.
        producer: the software that wrote the events: ``name``, ``version`` and, if known, ``git``.
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
    """Parse ``manifest.json``. Unknown members are ignored, as in Assay.

    Raises:
        InputError: ``bundle_manifest`` or ``bundle_limit``.
    """
    bounds = Limits(record_bytes_max=limits.manifest_bytes_max, depth_max=limits.depth_max)
    try:
        manifest = _read(Members(decode_json(raw, limits=bounds)))
    except InputError as error:
        raise InputError("bundle_manifest", f"{MANIFEST_NAME}: {error.message}", path=error.path) from None
    if manifest.event_count > limits.events_max:
        raise InputError("bundle_limit", f"{MANIFEST_NAME} names over {limits.events_max} events")
    return manifest


def _read(content: Members) -> Manifest:
    if content.take("schema_version", int) != SCHEMA_VERSION:
        raise _wrong("schema_version", f"must be {SCHEMA_VERSION}")
    algorithms = content.take("algorithms", dict)
    if {name: algorithms.get(name) for name in ALGORITHMS} != ALGORITHMS:
        raise _wrong("algorithms", "must be those of version 1")
    files = content.object("files")
    if list(files.rest) != [EVENTS_NAME]:
        raise _wrong("files", f"must name {EVENTS_NAME} and nothing else")
    entry = Members(files.take(EVENTS_NAME, dict), f"$.files['{EVENTS_NAME}']")
    if entry.rest.get("path") != EVENTS_NAME:
        raise _wrong("files", f"the path must be {EVENTS_NAME}")
    count, root = content.take("event_count", int), _digest(content, "run_root")
    if count < 1:
        raise _wrong("event_count", "a bundle has one event at least")
    if content.take("bundle_id", str) != str(root):
        raise _wrong("bundle_id", "must be the run root")
    producer = content.take("producer", dict)
    if not all(isinstance(value, str | None) for value in producer.values()):
        raise _wrong("producer", "its members must be strings")
    return Manifest(
        run_id=content.take("run_id", str),
        event_count=count,
        run_root=root,
        producer={name: value for name, value in producer.items() if value is not None},
        events_digest=_digest(entry, "sha256"),
        events_bytes=entry.take("bytes", int),
    )


def _digest(content: Members, name: str) -> Digest:
    # Assay reads a bare digest too.
    text = content.rest.get(name)
    if isinstance(text, str):
        content.rest[name] = f"sha256:{text.removeprefix('sha256:')}"
    return content.digest(name)


def _wrong(name: str, what: str) -> InputError:
    return InputError("bundle_manifest", what, path=f"$.{name}")


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


_RUN_ID_CHARS_MAX = 256
_UNKNOWN_COMMIT = "unknown"
_NANOSECOND_DIGITS = 9
_TIME = re.compile(r"(?P<second>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.(?P<digits>\d+))?(?P<offset>Z|[+-]\d\d:\d\d)")


class RunRoot:
    """Incremental digest over the content hashes of a run, in order."""

    def __init__(self) -> None:
        self._hasher = hashlib.sha256()

    def add(self, content_hash: Digest) -> None:
        self._hasher.update(f"{content_hash}\n".encode())

    def digest(self) -> Digest:
        return Digest(self._hasher.hexdigest())


def check_run_id(run_id: str) -> str:
    """Return ``run_id`` if a bundle may use it.

    Raises:
        InputError: ``bad_run_id``.
    """
    if not run_id or len(run_id) > _RUN_ID_CHARS_MAX or ":" in run_id or not run_id.isprintable():
        raise InputError("bad_run_id", f"a run id is 1 to {_RUN_ID_CHARS_MAX} printable characters without a colon")
    return run_id


def run_event(event: Mapping[str, Any], *, run_id: str, seq: int) -> dict[str, Any]:
    """Return an event with its run id, its sequence number and the id derived from both.

    Its time is formatted as Assay's writer formats it.
    """
    time = written_time(event["time"])
    return {**event, "id": f"{run_id}:{seq}", "assayrunid": run_id, "assayseq": seq, "time": time}


def written_time(text: str) -> str:
    """Format a time as Assay's writer does: UTC, with 0, 3, 6 or 9 fractional digits.

    Raises:
        InputError: ``bad_time``.
    """
    match = _TIME.fullmatch(text.upper())
    try:
        if match is None:
            raise ValueError
        moment = datetime.fromisoformat(match["second"] + match["offset"]).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError("bad_time", "the time is not RFC 3339, or does not exist", path="$.time") from None
    digits = (match["digits"] or "")[:_NANOSECOND_DIGITS].rstrip("0")
    fraction = f".{digits:0<{-(-len(digits) // 3) * 3}}" if digits else ""
    return f"{moment.isoformat(timespec='seconds')[:19]}{fraction}Z"


def event_line(event: Mapping[str, Any], *, limits: BundleLimits = BUNDLE_LIMITS) -> bytes:
    """Return the canonical form of an event, terminated by a line feed.

    Raises:
        InputError: ``bundle_limit`` if verifiers would reject it.
    """
    line = canonicalize(dict(event)) + b"\n"
    if len(line) > limits.line_bytes_max:
        raise InputError("bundle_limit", f"an event has over {limits.line_bytes_max} bytes")
    return line


def producer_of(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the producer of an event in the form the manifest uses."""
    producer = {"name": event["assayproducer"], "version": event["assayproducerversion"]}
    if event["assaygit"] != _UNKNOWN_COMMIT:
        producer["git"] = event["assaygit"]
    return producer


_TEXTS = ("type", "source", "id", "time", "datacontenttype", "assayproducer", "assayproducerversion", "assaygit")


def check_event(event: Any) -> Digest:
    """Return the content hash of an envelope, after checking everything but run id and sequence.

    Raises:
        InputError: ``not_evidence``, ``content_hash_mismatch``, or as ``canonicalize``.
    """
    if not isinstance(event, dict) or event.get("specversion") != "1.0":
        raise InputError("not_evidence", "an evidence record is a CloudEvent 1.0", path="$.specversion")
    for name in _TEXTS:
        if not isinstance(event.get(name), str):
            raise InputError("not_evidence", "the envelope needs this attribute, a string", path=f"$.{name}")
    for name in ("assaypii", "assaysecrets"):
        if not isinstance(event.get(name), bool):
            raise InputError("not_evidence", "the envelope needs this attribute, true or false", path=f"$.{name}")
    for name in ("subject", "traceparent", "tracestate", "assaypolicyid"):
        if not isinstance(event.get(name), str | None):
            raise InputError("not_evidence", "must be a string if present", path=f"$.{name}")
    if ":" not in event["source"][1:] or event["source"].startswith(":"):
        raise InputError("not_evidence", "the source is a URI", path="$.source")
    found = content_hash(event) if "data" in event else None
    if found is None or event.get("assaycontenthash") != str(found):
        raise hash_mismatch()
    return found


def decode_limits(limits: BundleLimits) -> Limits:
    return Limits(record_bytes_max=limits.line_bytes_max, depth_max=limits.depth_max)


class EventCheck:
    """Line-by-line checker of ``events.ndjson``."""

    def __init__(self, manifest: Manifest, *, limits: BundleLimits = BUNDLE_LIMITS) -> None:
        self._manifest = manifest
        self._limits = limits
        self._decode_limits = decode_limits(limits)
        self._root = RunRoot()
        self._hasher = hashlib.sha256()
        self._bytes = 0
        self._source: str | None = None
        self.count = 0

    def add(self, line: bytes) -> dict[str, Any]:
        """Check the next line and return its event.

        Raises:
            InputError: a code of this module; the message gives the 1-based line number.
        """
        number = self.count + 1
        where = f"line {number} of {EVENTS_NAME}"
        if len(line) > self._limits.line_bytes_max:
            raise InputError("bundle_limit", f"{where} has over {self._limits.line_bytes_max} bytes")
        if number > self._limits.events_max:
            raise InputError("bundle_limit", f"{EVENTS_NAME} has over {self._limits.events_max} events")
        self._hasher.update(line)
        self._bytes += len(line)
        with named_in_errors(where):
            event = decode_json(line.removesuffix(b"\n"), limits=self._decode_limits)
            content_hash = check_event(event)
            written_time(event["time"])
        if self._source is None:
            self._source = event["source"]
        seq = event.get("assayseq")
        expected = {
            "assayseq": (seq if type(seq) is int else None, self.count),
            "assayrunid": (event.get("assayrunid"), self._manifest.run_id),
            "id": (event["id"], f"{self._manifest.run_id}:{self.count}"),
            "source": (event["source"], self._source),
        }
        for name, (found, wanted) in expected.items():
            if found != wanted:
                raise InputError("bundle_event", f"{where}: {_EVENT_RULES[name]}", path=f"$.{name}")
        if ":" in self._manifest.run_id:
            raise InputError("bundle_event", f"{where}: {_EVENT_RULES['run_id']}", path="$.assayrunid")
        self._root.add(content_hash)
        self.count = number
        return dict(event)

    def finish(self) -> None:
        """Check the totals against the manifest.

        Raises:
            InputError: ``bundle_event``, ``bundle_run_root`` or ``bundle_digest``.
        """
        manifest = self._manifest
        if self.count != manifest.event_count:
            raise InputError(
                "bundle_event",
                f"{EVENTS_NAME} has {self.count} events, the manifest says {manifest.event_count}: "
                "some were removed or added",
            )
        if self._root.digest() != manifest.run_root:
            raise InputError(
                "bundle_run_root",
                "the content hashes do not make the manifest's run root: events or the manifest were replaced",
            )
        if self._bytes != manifest.events_bytes or Digest(self._hasher.hexdigest()) != manifest.events_digest:
            raise InputError(
                "bundle_digest",
                f"{EVENTS_NAME} does not have the manifest's size and digest, though every content hash is right: what "
                "changed is not covered by them (time, producer, trace, form), or the manifest changed",
            )


_EVENT_RULES = {
    "assayseq": "the sequence counts from 0 without a gap",
    "assayrunid": "the run id is not the manifest's",
    "id": "the id is not made of run id and sequence",
    "source": "the source is not that of the first event",
    "run_id": "a run id has no colon",
}
