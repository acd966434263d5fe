"""Assay (Rul1an/assay): ``manifest.json`` of an evidence bundle, written and read."""

from collections.abc import Mapping
from dataclasses import dataclass

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import Digest, canonicalize
from assay_stream.errors import InputError
from assay_stream.limits.core import Limits
from assay_stream.limits.files import BUNDLE_LIMITS, BundleLimits
from assay_stream.schemes.members import Members

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
