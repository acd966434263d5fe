"""Why a broker refuses us, in words. Real brokers that do are tests/integration's."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest
from aiokafka import errors as kafka

from assay_stream.errors import ConfigurationError, InputError, IntegrityError, OperatingError
from assay_stream.kafka.refusals import _refusal_of, explained, why_refused
from tests.support.deployment import free_port


@pytest.fixture
async def rude() -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_port_without_tls_is_named(rude: int) -> None:
    """Its address and the variable stand in the message."""
    told = await why_refused(
        {
            "bootstrap_servers": f"127.0.0.1:{rude}",
            "security_protocol": "SSL",
            "ssl_context": ssl.create_default_context(),
        }
    )
    assert told is not None
    assert told.code == "broker_without_tls"
    assert f"127.0.0.1:{rude}" in told.message
    assert "ASSAY_STREAM_SECURITY_PROTOCOL" in told.message


async def test_a_broker_that_is_away_does_not_refuse() -> None:
    """It may come back: that is for whoever waits."""
    assert await why_refused({"bootstrap_servers": f"127.0.0.1:{free_port()}"}) is None


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (10, "broker_certificate_expired"),
        (9, "broker_certificate_expired"),
        (62, "broker_name_differs"),
        (64, "broker_name_differs"),
        (18, "broker_not_trusted"),
        (19, "broker_not_trusted"),
        (20, "broker_not_trusted"),
    ],
)
def test_what_openssl_says_of_a_certificate_is_told(number: int, code: str) -> None:
    """The numbers are those of OpenSSL's x509_vfy.h."""
    error = ssl.SSLCertVerificationError()
    error.verify_code = number
    told = _refusal_of(error, is_sasl=False)
    assert told is not None
    assert told[0] == code


def test_a_broker_that_does_not_know_the_password_is_not_ours() -> None:
    """SCRAM proves both sides; the client raises a ValueError where the broker's proof is wrong."""
    told = _refusal_of(ValueError("wrong signature"), is_sasl=True)
    assert told is not None
    assert told[0] == "broker_not_genuine"
    assert _refusal_of(ValueError("anything"), is_sasl=False) is None


def test_what_a_user_may_not_do_is_the_operators_to_mend() -> None:
    """Every way in which the client puts it; what it names is named."""
    for error, named in (
        (kafka.TopicAuthorizationFailedError("a-topic"), "TopicAuthorizationFailedError a-topic)"),
        (kafka.TopicAuthorizationFailedError({"b", "a"}), "TopicAuthorizationFailedError a b)"),
        (kafka.GroupAuthorizationFailedError(None), "GroupAuthorizationFailedError)"),
        (kafka.TransactionalIdAuthorizationFailed("an-id"), "TransactionalIdAuthorizationFailed an-id)"),
        (kafka.ClusterAuthorizationFailedError(), "ClusterAuthorizationFailedError)"),
    ):
        told = explained(error)
        assert isinstance(told, ConfigurationError)
        assert told.code == "not_authorized"
        assert named in str(told)


def test_other_errors_of_the_client_are_the_brokers() -> None:
    told = explained(kafka.NotEnoughReplicasError())
    assert isinstance(told, OperatingError)
    assert told.code == "brokers_failing"


@pytest.mark.parametrize("error", [InputError("a", "b"), IntegrityError("a", "b")])
def test_our_own_errors_stay_what_they_are(error: Exception) -> None:
    assert explained(error) is error


def test_a_defect_is_not_explained_away() -> None:
    assert explained(KeyError("x")) is None
