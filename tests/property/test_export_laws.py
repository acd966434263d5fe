"""Laws of exports: the order of what is read never shows, and what was written is read back."""

import random
import tempfile
from pathlib import Path
from typing import Any

import orjson
from hypothesis import given, strategies as st

from assay_stream.errors import InputError
from assay_stream.report.export import Collection, export_bundles
from assay_stream.report.export_input import Dataset, ExportSelection, Stored, read_bundle, verify_bundle, write_bundle
from tests.support.exports import evidence

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
calls = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 59), values), min_size=1, max_size=6)


def records(drawn: list[tuple[int, int, Any]]) -> list[bytes]:
    return [
        evidence(number, time=f"2026-03-01T12:00:{second:02}Z", data={"x": value}) for number, second, value in drawn
    ]


def bundled(raw: list[bytes], path: Path) -> bytes:
    with Collection(ExportSelection(), frozenset(Dataset)) as collection:
        collection.take(Stored("here", line) for line in raw)
        export_bundles(collection, path, run_id=None, split=None)
    return path.read_bytes()


@given(calls, st.randoms(use_true_random=False))
def test_the_order_of_arrival_and_repetition_never_show(drawn: list[Any], choose: random.Random) -> None:
    raw = records(drawn)
    mixed = raw + [choose.choice(raw) for _ in range(3)]
    choose.shuffle(mixed)
    with tempfile.TemporaryDirectory() as name:
        assert bundled(mixed, Path(name) / "a.tar.gz") == bundled(raw, Path(name) / "b.tar.gz")


@given(calls)
def test_what_was_written_is_read_back(drawn: list[Any]) -> None:
    events = [orjson.loads(line) for line in records(drawn)]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "b.tar.gz"
        manifest = write_bundle(path, events, run_id="r")
        found = [orjson.loads(line) for line in read_bundle(path)]
        assert verify_bundle(path) == manifest
    for seq, (event, read) in enumerate(zip(events, found, strict=True)):
        assert read == event | {"id": f"r:{seq}", "assayrunid": "r", "assayseq": seq}


@given(calls, st.data())
def test_any_bytes_give_events_or_our_error(drawn: list[Any], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "b.tar.gz"
        write_bundle(path, [orjson.loads(line) for line in records(drawn)], run_id="r")
        before, raw = list(read_bundle(path)), bytearray(path.read_bytes())
        start = data.draw(st.integers(0, len(raw)))
        raw[start : start + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
        path.write_bytes(raw)
        code = None
        try:
            assert list(read_bundle(path)) == before
        except InputError as error:
            code = error.code
    assert code != ""
