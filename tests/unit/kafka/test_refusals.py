"""Why a broker refuses us, in words. Real brokers that do are tests/integration's."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest
from aiokafka import errors as kafka

from assay_stream.errors import ConfigurationError, InputError, IntegrityError, OperatingError
from assay_stream.kafka.refusals import _refusal_of, explained, why_away, why_refused
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


def of_certificate(number: int) -> ssl.SSLCertVerificationError:
    """As OpenSSL numbers faults in x509_vfy.h."""
    error = ssl.SSLCertVerificationError()
    error.verify_code = number
    return error


@pytest.mark.parametrize(
    ("error", "is_sasl", "code"),
    [
        *((of_certificate(number), False, "broker_certificate_expired") for number in (9, 10)),
        *((of_certificate(number), False, "broker_name_differs") for number in (62, 64)),
        *((of_certificate(number), False, "broker_not_trusted") for number in (18, 19, 20)),
        # SCRAM proves both sides; the client raises a ValueError where the broker's proof is wrong.
        (ValueError("wrong signature"), True, "broker_not_genuine"),
        (ValueError("anything"), False, None),
    ],
)
def test_what_a_client_meets_has_a_code(error: Exception, is_sasl: bool, code: str | None) -> None:
    told = _refusal_of(error, is_sasl=is_sasl)
    assert (None if told is None else told[0]) == code


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


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (kafka.KafkaConnectionError(), "broker_unreachable: no broker answers."),
        (TimeoutError(), "broker_unreachable: no broker answers."),
        (kafka.KafkaTimeoutError(), "brokers_failing: the brokers failed (KafkaTimeoutError)"),
        (kafka.TopicAuthorizationFailedError("t"), "not_authorized: "),
        (IntegrityError("foreign_verdict", "not ours"), "foreign_verdict: not ours"),
        (ValueError("quotes"), "ValueError"),
    ],
)
@pytest.mark.parametrize("connection", [None, {"bootstrap_servers": "127.0.0.1:1"}])
async def test_a_log_says_what_keeps_a_process_from_the_brokers(
    error: Exception, told: str, connection: dict[str, str] | None
) -> None:
    assert (await why_away(error, connection)).startswith(told)
