"""Where a digest key is set, nothing that is published of arguments and results can be guessed without it."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from assay_stream.canonical.digest import redacted_digest
from assay_stream.config import Settings
from assay_stream.errors import InputError
from assay_stream.model.cloudevents import read_event
from assay_stream.observe import DigestKey, FileSink, Observation, ObservationPublisher
from assay_stream.observe.observation import with_keyed_digests
from tests.unit.observe.test_events import a_call, a_snapshot, as_record

KEY = DigestKey("0f" * 32)
PLAIN = str(redacted_digest({"a": 1}))


def data_of(observation: Observation) -> dict[str, Any]:
    return dict(json.loads(observation.value)["data"])


def test_both_digests_are_keyed_and_nothing_else_changes() -> None:
    call = a_call(args_hash=PLAIN, result_hash=PLAIN, ok=True)
    keyed = with_keyed_digests(call, KEY)
    assert data_of(keyed) == data_of(call) | {"args_hash": KEY.keyed(PLAIN), "result_hash": KEY.keyed(PLAIN)}
    assert keyed.value.replace(str(KEY.keyed(PLAIN)).encode(), PLAIN.encode()) == call.value
    read_event(as_record(keyed))


def test_inline_arguments_are_replaced_by_their_keyed_digest() -> None:
    event = json.loads(a_call().value)
    event["data"]["args"] = {"a": 1}
    keyed = with_keyed_digests(replace(a_call(), value=json.dumps(event).encode()), KEY)
    assert data_of(keyed)["args_hash"] == KEY.keyed(PLAIN)
    assert "args" not in data_of(keyed)


@pytest.mark.parametrize("stated", ["claimed", "0" * 64])
def test_a_digest_that_cannot_be_keyed_is_left_out(stated: str) -> None:
    """The handshake profile takes bare SHA-256 only: its calls then have none."""
    assert "args_hash" not in data_of(with_keyed_digests(a_call(args_hash=stated), KEY))


def test_what_a_forgiving_reader_makes_of_arguments_is_not_hashed() -> None:
    """Arguments that nest too deeply: whoever reads the call refuses it by name, as without a key."""
    deep = a_call().value.replace(b'"data":{', b'"data":{"args":' + b"[" * 3_000 + b"]" * 3_000 + b",")
    call = replace(a_call(), value=deep)
    assert with_keyed_digests(call, KEY) == call
    with pytest.raises(InputError):
        read_event(as_record(call))


def test_names_that_an_operator_declares_sensitive_are_redacted_before_hashing() -> None:
    settings = Settings(digest_key=SecretStr("0f" * 32), redaction_names="badge")
    key = settings.keyed_by()
    assert key is not None
    event = json.loads(a_call().value)
    event["data"]["args"] = {"badge": "271828"}
    keyed = with_keyed_digests(replace(a_call(), value=json.dumps(event).encode()), key)
    expected = redacted_digest({"badge": "271828"}, settings.redaction())
    assert expected != redacted_digest({"badge": "271828"})
    assert data_of(keyed)["args_hash"] == KEY.keyed(str(expected))


def test_lists_stay_as_they_are() -> None:
    assert with_keyed_digests(a_snapshot([]), KEY) == a_snapshot([])


def test_every_sink_keys_what_it_takes() -> None:
    file = io.BytesIO()
    FileSink(file, digest_key=KEY).publish(a_call(args_hash=PLAIN))
    assert json.loads(file.getvalue())["data"]["args_hash"] == KEY.keyed(PLAIN)


def test_the_publisher_keys_before_anything_is_queued_or_spooled() -> None:
    publisher = ObservationPublisher({}, digest_key=KEY)
    publisher.publish(a_call(args_hash=PLAIN))
    assert publisher.stats.queued_bytes == with_keyed_digests(a_call(args_hash=PLAIN), KEY).size_bytes
