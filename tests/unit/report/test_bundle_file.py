"""Bundles in files: what is written, and everything that a verifier must name."""

import gzip
import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.limits import BundleLimits
from assay_stream.report.export_input import is_bundle, read_bundle, verify_bundle, write_bundle
from tests.support.errors import raises_code
from tests.support.exports import changed, evidence, members, rebuilt, sealed

EVENTS = [orjson.loads(evidence(number)) for number in range(3)]
Members = dict[str, bytes]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "bundle.tar.gz"
    write_bundle(path, EVENTS, run_id="run-1")
    return path


def refused(path: Path, **limits: int) -> InputError:
    with pytest.raises(InputError) as caught:
        verify_bundle(path, limits=BundleLimits(**limits))
    return caught.value


def resealed(content: Members, lines: list[bytes]) -> None:
    events = b"".join(lines)
    manifest = json.loads(content["manifest.json"])
    manifest["files"]["events.ndjson"] |= {"bytes": len(events), "sha256": "sha256:" + sha256(events).hexdigest()}
    manifest["event_count"] = len(lines)
    hashes = "".join(json.loads(line)["assaycontenthash"] + "\n" for line in lines)
    manifest["run_root"] = manifest["bundle_id"] = "sha256:" + sha256(hashes.encode()).hexdigest()
    content["manifest.json"] = canonicalize(manifest)
    content["events.ndjson"] = events


def test_nothing_is_left_beside_a_bundle(bundle: Path) -> None:
    assert os.listdir(bundle.parent) == ["bundle.tar.gz"]


@pytest.mark.parametrize("run_id", ["", "a:b", "x" * 257, "a\nb"])
def test_a_run_id_that_no_verifier_takes_is_refused(run_id: str, tmp_path: Path) -> None:
    with raises_code("bad_run_id"):
        write_bundle(tmp_path / "b.tar.gz", EVENTS, run_id=run_id)


def test_records_of_two_sources_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_bytes(b"before")
    with raises_code("mixed_sources"):
        write_bundle(path, [*EVENTS, orjson.loads(evidence(9, source="urn:else"))], run_id="r")
    assert path.read_bytes() == b"before"


@pytest.mark.parametrize("limit", ["events_max", "events_bytes_max", "bundle_bytes_max", "line_bytes_max"])
def test_what_no_verifier_would_take_is_not_written(limit: str, tmp_path: Path) -> None:
    with raises_code("bundle_limit"):
        write_bundle(tmp_path / "b.tar.gz", EVENTS, run_id="r", limits=BundleLimits(**{limit: 2}))


def test_no_event_makes_no_bundle(tmp_path: Path) -> None:
    """A bundle has one event at least."""
    with raises_code("bundle_event"):
        write_bundle(tmp_path / "b.tar.gz", [], run_id="r")
    assert not (tmp_path / "b.tar.gz").exists()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with raises_code("unwritable_file", match=r"b\.tar\.gz"):
        write_bundle(tmp_path / "no" / "b.tar.gz", EVENTS, run_id="r")


def test_a_changed_line_is_named(bundle: Path) -> None:
    def change(content: Members) -> None:
        first, second, third = content["events.ndjson"].splitlines(keepends=True)
        content["events.ndjson"] = first + second.replace(b"read_file", b"send_file") + third

    error = refused(changed(bundle, change))
    assert (error.code, error.path) == ("content_hash_mismatch", "$.assaycontenthash")
    assert "line 2 of events.ndjson" in error.message
    assert "send_file" not in str(error)


def lines_of(content: Members) -> list[bytes]:
    return content["events.ndjson"].splitlines(keepends=True)


def with_event(index: int, **changes: Any) -> Callable[[Members], None]:
    def change(content: Members) -> None:
        lines = lines_of(content)
        event = json.loads(lines[index]) | changes
        lines[index] = sealed(event) + b"\n"
        resealed(content, lines)

    return change


def with_decimal_sequence(content: Members) -> None:
    first, *others = lines_of(content)
    resealed(content, [first.replace(b'"assayseq":0', b'"assayseq":0.0'), *others])


@pytest.mark.parametrize(
    ("change", "code", "where"),
    [
        (lambda content: resealed(content, lines_of(content)[1:]), "bundle_event", "line 1"),
        (lambda content: resealed(content, lines_of(content)[::2]), "bundle_event", "line 2"),
        (lambda content: resealed(content, lines_of(content)[:1] * 2), "bundle_event", "line 2"),
        (with_event(1, id="run-1:2"), "bundle_event", "line 2"),
        (with_event(2, assayrunid="run-2"), "bundle_event", "line 3"),
        (with_event(2, source="urn:else"), "bundle_event", "line 3"),
        (with_event(0, source="nowhere"), "not_evidence", "line 1"),
        (with_event(0, assayseq=False), "bundle_event", "line 1"),
        (with_decimal_sequence, "bundle_event", "line 1"),
        (with_event(1, time="2026-13-01T00:00:00Z"), "bad_time", "line 2"),
    ],
)
def test_the_rules_of_the_run_hold_also_behind_right_digests(
    bundle: Path, change: Callable[[Members], None], code: str, where: str
) -> None:
    error = refused(changed(bundle, change))
    assert error.code == code
    assert where in error.message


def at_another_time(content: Members) -> None:
    content["events.ndjson"] = content["events.ndjson"].replace(b"T12:00:00Z", b"T13:00:00Z", 1)


def of_another_manifest(content: Members) -> None:
    manifest = json.loads(content["manifest.json"])
    manifest["run_root"] = manifest["bundle_id"] = "sha256:" + "0" * 64
    content["manifest.json"] = canonicalize(manifest)


def without_the_last(content: Members) -> None:
    content["events.ndjson"] = b"".join(lines_of(content)[:2])


@pytest.mark.parametrize(
    ("change", "code"),
    [(at_another_time, "bundle_digest"), (of_another_manifest, "bundle_run_root"), (without_the_last, "bundle_event")],
)
def test_what_the_manifest_does_not_state_is_refused(
    bundle: Path, change: Callable[[Members], None], code: str
) -> None:
    """A time, too, which the content hash does not cover: the digest of the member does."""
    assert refused(changed(bundle, change)).code == code


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["manifest.json"], "events.ndjson is missing"),
        (["events.ndjson"], "manifest.json is missing"),
        (["events.ndjson", "manifest.json"], "manifest.json is missing"),
        (["manifest.json", "manifest.json", "events.ndjson"], "events.ndjson is missing"),
        (["manifest.json", "events.ndjson", "extra"], "something follows"),
        (["manifest.json", "events.ndjson", "events.ndjson"], "something follows"),
        ([], "manifest.json is missing"),
    ],
)
def test_a_bundle_has_its_two_members_in_order(bundle: Path, names: list[str], said: str) -> None:
    content = members(bundle) | {"extra": b"x"}
    error = refused(rebuilt(bundle.with_name("b.tar.gz"), iter([(name, content[name]) for name in names])))
    assert error.code == "bundle_member"
    assert said in error.message


@pytest.mark.parametrize("kind", [b"1", b"2", b"5", b"x", b"L"])
def test_links_and_folders_are_refused(bundle: Path, kind: bytes) -> None:
    assert refused(rebuilt(bundle.with_name("b.tar.gz"), members(bundle), type=kind)).code == "bundle_member"


@pytest.mark.parametrize("name", ["../manifest.json", "/manifest.json", "./manifest.json", "a/manifest.json"])
def test_a_member_elsewhere_is_another_member(bundle: Path, name: str) -> None:
    """Nothing is ever written where a tar says; and a name is compared, not resolved."""
    content = iter([(name, b"{}"), ("events.ndjson", b"")])
    assert refused(rebuilt(bundle.with_name("b.tar.gz"), content)).code == "bundle_member"


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.99])
def test_a_cut_file_is_named_as_cut(bundle: Path, kept: float) -> None:
    raw = bundle.read_bytes()
    bundle.write_bytes(raw[: int(len(raw) * kept)])
    assert refused(bundle).code == "archive_truncated"


def test_a_cut_tar_is_named_as_cut(bundle: Path) -> None:
    tar = gzip.decompress(bundle.read_bytes())
    bundle.write_bytes(gzip.compress(tar[:2_000]))
    assert refused(bundle).code == "archive_truncated"


def test_a_flipped_bit_is_found(bundle: Path) -> None:
    raw = bytearray(bundle.read_bytes())
    for position in range(20, len(raw) - 8, 37):
        flipped = raw.copy()
        flipped[position] ^= 0x10
        bundle.write_bytes(flipped)
        assert refused(bundle).code


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("bundle_bytes_max", "bundle.tar.gz"),
        ("manifest_bytes_max", "manifest.json"),
        ("events_bytes_max", "events.ndjson"),
        ("events_max", "manifest.json"),
        ("line_bytes_max", "line 1 of events.ndjson"),
    ],
)
def test_limits_are_named_with_what_is_over_them(bundle: Path, limit: str, said: str) -> None:
    error = refused(bundle, **{limit: 2})
    assert error.code == "bundle_limit"
    assert said in error.message


def test_deep_nesting_is_refused(bundle: Path) -> None:
    assert refused(bundle, depth_max=2).code in {"bundle_manifest", "too_deep"}


def test_a_bomb_is_not_unpacked(bundle: Path) -> None:
    tar = gzip.decompress(bundle.read_bytes())
    bundle.write_bytes(gzip.compress(tar + bytes(8 * 1024 * 1024)))
    assert refused(bundle, decoded_bytes_max=1024 * 1024).code == "archive_too_large"


@pytest.mark.parametrize(
    ("before", "behind"),
    [(b"", b"\0"), (b"", b"x"), (b"", gzip.compress(b"", mtime=0)), (gzip.compress(b"", mtime=0), b"")],
    ids=["a zero behind", "a byte behind", "an empty member behind", "an empty member before"],
)
def test_a_bundle_is_one_gzip_member_and_no_more(bundle: Path, before: bytes, behind: bytes) -> None:
    """Whatever else stands in the file is covered by no digest, and readers differ in what they make of it."""
    bundle.write_bytes(before + bundle.read_bytes() + behind)
    found = refused(bundle)
    assert (found.code, "one gzip member" in found.message) == ("bundle_member", True)


def test_something_else_than_gzip_is_no_bundle(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_bytes(b"{}")
    assert refused(path).code == "bundle_member"


def test_a_missing_file_is_unreadable(tmp_path: Path) -> None:
    assert refused(tmp_path / "none").code == "unreadable_file"


def test_reading_a_broken_bundle_gives_nothing(bundle: Path) -> None:
    """All of it is verified before the first line is given: no half of a changed bundle is used."""

    def change(content: Members) -> None:
        content["events.ndjson"] = content["events.ndjson"][:-4]

    with pytest.raises(InputError):
        next(read_bundle(changed(bundle, change)))


def test_a_bundle_is_told_from_an_archive(bundle: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a.ndjson.gz"
    archive.write_bytes(gzip.compress(evidence()))
    plain = tmp_path / "p.ndjson"
    plain.write_bytes(evidence())
    assert [is_bundle(path) for path in (bundle, archive, plain, tmp_path / "none")] == [True, False, False, False]
