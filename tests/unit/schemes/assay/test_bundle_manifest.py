"""The manifest of a bundle, read strictly."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError
from assay_stream.schemes.assay.bundle import Manifest, read_manifest

MANIFEST = Manifest(
    run_id="r",
    event_count=2,
    run_root=Digest("a" * 64),
    producer={"name": "p", "version": "1"},
    events_digest=Digest("b" * 64),
    events_bytes=99,
)
CONTENT: dict[str, Any] = orjson.loads(MANIFEST.encode())
FILE: dict[str, Any] = CONTENT["files"]["events.ndjson"]


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert read_manifest(MANIFEST.encode()) == MANIFEST


def test_further_members_and_a_bare_digest_are_read() -> None:
    """As Assay reads them: an extension, a producer without a commit, a digest without its prefix."""
    content = CONTENT | {
        "x-assay": {"a": 1},
        "producer": CONTENT["producer"] | {"git": None},
        "files": {"events.ndjson": FILE | {"sha256": "b" * 64}},
    }
    assert read_manifest(orjson.dumps(content)) == MANIFEST


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"schema_version": 2}, "$.schema_version"),
        ({"schema_version": True}, "$.schema_version"),
        ({"algorithms": {}}, "$.algorithms"),
        ({"algorithms": None}, "$.algorithms"),
        ({"files": {}}, "$.files"),
        ({"files": CONTENT["files"] | {"more": FILE}}, "$.files"),
        ({"files": {"events.ndjson": FILE | {"path": "/etc/passwd"}}}, "$.files"),
        ({"files": {"events.ndjson": FILE | {"bytes": "9"}}}, "$.files['events.ndjson'].bytes"),
        ({"files": {"events.ndjson": FILE | {"sha256": "B" * 64}}}, "$.files['events.ndjson'].sha256"),
        ({"event_count": 0}, "$.event_count"),
        ({"run_root": "x"}, "$.run_root"),
        ({"bundle_id": "sha256:" + "0" * 64}, "$.bundle_id"),
        ({"producer": {"name": 7}}, "$.producer"),
        ({"run_id": None}, "$.run_id"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        read_manifest(orjson.dumps(CONTENT | changes))
    assert (caught.value.code, caught.value.path) == ("bundle_manifest", path)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"a":1,"a":1}', b"\xff"])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(InputError) as caught:
        read_manifest(raw)
    assert caught.value.code == "bundle_manifest"


def test_more_events_than_a_bundle_may_have_are_refused_at_once() -> None:
    with pytest.raises(InputError) as caught:
        read_manifest(orjson.dumps(CONTENT | {"event_count": 100_001}))
    assert caught.value.code == "bundle_limit"
