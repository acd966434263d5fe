"""How the clients are told to reach the brokers, and reading up to an end, over a cluster in memory."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from cryptography.hazmat.primitives import serialization

from assay_stream import __version__
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.connection import connection_options, read, read_last, read_partition, start_admin
from assay_stream.model.record import Role
from assay_stream.model.state_table import LEVEL
from deploy.local.secured import make_certificates
from tests.support.deployment import free_port
from tests.support.errors import raises_code
from tests.support.memory_cluster import MemoryCluster


def test_plain_text_needs_an_address_alone() -> None:
    """Without security there are no secrets among the options, and brokers learn the release."""
    assert connection_options(Settings(bootstrap_servers="a:1")) == {
        "bootstrap_servers": "a:1",
        "client_id": f"assay-stream-{__version__}-level{LEVEL}",
        "security_protocol": "PLAINTEXT",
    }


def test_sasl_needs_a_name_and_a_password() -> None:
    """Without them nothing connects, and the error names the variables."""
    with pytest.raises(ConfigurationError, match="ASSAY_STREAM_SASL_PASSWORD"):
        connection_options(Settings(security_protocol="SASL_PLAINTEXT", sasl_username="u"))
    options = connection_options(Settings(security_protocol="SASL_PLAINTEXT", sasl_username="u", sasl_password="p"))
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("u", "p")
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"


def test_tls_checks_the_brokers() -> None:
    """The default context verifies certificates and host names."""
    context = connection_options(Settings(security_protocol="SSL"))["ssl_context"]
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"


@pytest.mark.parametrize("field", ["ssl_cafile", "ssl_certfile"])
def test_a_tls_file_that_cannot_be_used_is_an_error(tmp_path: Path, field: str) -> None:
    """A missing or empty file is named as a setting."""
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for path in (tmp_path / "missing.pem", empty):
        with raises_code("bad_tls_file", kind=ConfigurationError, match="ASSAY_STREAM_SSL_"):
            connection_options(Settings(security_protocol="SSL", **{field: path}))  # type: ignore[arg-type]


async def test_brokers_that_do_not_answer_are_given_up_in_time() -> None:
    """After the operator's limit the error names the address and the variable."""
    address = f"127.0.0.1:{free_port()}"
    settings = Settings(bootstrap_servers=address, connect_limit_s=1)
    async with asyncio.timeout(10):
        with raises_code("broker_unreachable", kind=OperatingError, match=address):
            await start_admin(settings)


async def test_a_host_that_never_answers_is_given_up_in_time() -> None:
    """One that takes the connection and says nothing holds nobody longer than one that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = Settings(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}", connect_limit_s=1)
        async with asyncio.timeout(20):
            with raises_code("broker_unreachable", kind=OperatingError):
                await start_admin(settings)


def _client_pair(folder: Path, password: bytes) -> Path:
    make_certificates(folder)
    raw = (folder / "broker.pem").read_bytes()
    key = serialization.load_pem_private_key(raw, None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(password)
    )
    path = folder / "client.pem"
    path.write_bytes(locked + raw[raw.index(b"-----BEGIN CERTIFICATE") :])
    return path


def test_a_client_key_may_have_a_password(tmp_path: Path) -> None:
    """It is used; without it, or with a wrong one, the error names the variables and nobody is asked."""
    path = _client_pair(tmp_path, b"planted")
    options: dict[str, Any] = {"security_protocol": "SSL", "ssl_certfile": path, "ssl_keyfile": path}
    assert connection_options(Settings(**options, ssl_keyfile_password="planted"))["ssl_context"]
    wrongs: list[dict[str, Any]] = [{}, {"ssl_keyfile_password": "other"}]
    for wrong in wrongs:
        with raises_code("bad_tls_file", kind=ConfigurationError, match="ASSAY_STREAM_SSL_"):
            connection_options(Settings(**options, **wrong))


HOME = TopicPartition("t", 0)


def filled(count: int) -> MemoryCluster:
    cluster = MemoryCluster({"t": 2})
    for number in range(count):
        cluster.append("t", 0, b"k", b"%d" % number)
    return cluster


async def test_a_part_is_read_from_an_offset_to_before_another() -> None:
    """And what is behind it stays unread."""
    consumer = filled(9).consumer()
    batches = [batch async for batch in read(consumer, HOME, 3, 6)]
    assert [message.offset for batch in batches for message in batch] == [3, 4, 5]
    assert [batch async for batch in read(consumer, HOME, 6, 6)] == []


async def test_reading_a_long_log_leaves_turns_to_others() -> None:
    """A restore that never paused would starve the heartbeats, and lose the partition that is being restored."""
    turns = 0

    async def beat() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    count = 0
    async for _ in read_partition(filled(20_000).consumer(), Role.BINDINGS, HOME):
        count += 1
    beating.cancel()
    assert count == 20_000
    assert turns >= 10


@pytest.mark.parametrize("aborted", [0, 50])
async def test_the_last_record_is_found_behind_markers_and_aborted_ones(aborted: int) -> None:
    """They take offsets too; an empty log has none."""
    cluster = filled(3)
    for _ in range(aborted):
        producer = cluster.producer("id")
        await producer.start()
        await producer.begin_transaction()
        batch = producer.create_batch()
        batch.append(timestamp=0, key=b"k", value=b"aborted")
        await producer.send_batch(batch, "t", partition=0)
        await producer.abort_transaction()
    found = await read_last(cluster.consumer(), Role.CALLS, HOME)
    assert found is not None
    assert found.value == b"2"
    assert await read_last(cluster.consumer(), Role.CALLS, TopicPartition("t", 1)) is None
