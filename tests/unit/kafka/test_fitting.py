"""What goes to Kafka must fit into it."""

from __future__ import annotations

import gzip
import random
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from assay_stream.errors import InputError
from assay_stream.kafka.stage import fitting
from assay_stream.model.record import Origin, Output, Record, Role, rejected

LIMIT = 10_000


def a_copy(value: bytes, key: bytes = b"server") -> Output:
    record = Record(
        role=Role.CALLS,
        origin=Origin(topic="mcp.tools.call", partition=2, offset=7),
        key=key,
        value=value,
        headers=(("trace", b"1"),),
    )
    return rejected(record, InputError("too_large", "too large"))


def test_a_copy_that_fits_is_as_it_was() -> None:
    copy = a_copy(b"x" * 5_000)
    assert fitting(copy, bytes_max=LIMIT) is copy


def test_a_copy_that_does_not_fit_is_compressed() -> None:
    """The original bytes can be had back, and a header says how."""
    copy = a_copy(b"x" * 500_000)
    packed = fitting(copy, bytes_max=LIMIT)
    assert gzip.decompress(packed.value or b"") == copy.value
    assert packed.key == copy.key
    assert packed.headers == (*copy.headers, ("error.value.encoding", b"gzip"))
    assert fitting(copy, bytes_max=LIMIT) == packed


def test_what_cannot_be_made_to_fit_is_named_by_digest_and_place() -> None:
    """The copy says where the original stands and what it hashes to."""
    value = random.Random(1).randbytes(50_000)
    named = fitting(a_copy(value), bytes_max=LIMIT)
    headers = dict(named.headers)
    assert named.value is None
    assert headers["error.value.omitted"].startswith(b"sha256:")
    place = [headers[f"error.{name}"] for name in ("topic", "partition", "offset")]
    assert place == [b"mcp.tools.call", b"2", b"7"]
    assert headers["error.code"] == b"too_large"


def test_a_huge_key_fits_too() -> None:
    """Whatever part is large, what is left is small."""
    named = fitting(a_copy(b"", key=random.Random(1).randbytes(50_000)), bytes_max=LIMIT)
    assert named.key is None
    assert len(named.headers) == 6


@pytest.mark.parametrize("bytes_max", [LIMIT, 50])
def test_a_header_without_a_value_is_copied(bytes_max: int) -> None:
    """Kafka allows null: a refused record that has one must not stop the stage that refuses it."""
    copy = a_copy(b"x" * 100)
    null: Any = ("trace", None)
    assert fitting(copy._replace(headers=(null, *copy.headers)), bytes_max=bytes_max).headers[-1][0] != "trace"


def test_a_copy_with_many_empty_headers_fits() -> None:
    """Each takes some bytes beside its name and value, which a topic counts."""
    copy = a_copy(b"x" * 100)
    fitted = fitting(copy._replace(headers=(("", b""),) * LIMIT + copy.headers), bytes_max=LIMIT)
    assert DefaultRecordBatchBuilder.estimate_size_in_bytes(fitted.key, fitted.value, list(fitted.headers)) < LIMIT
