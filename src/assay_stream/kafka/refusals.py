"""Diagnose refused broker connections, in messages that say what to fix.

aiokafka's clients only log why no broker could be reached, and raise an error without the reason. Here the
connection is attempted once more in isolation, and its failure is reported by cause.
"""

import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from assay_stream.errors import AssayStreamError, ConfigurationError, IntegrityError, OperatingError

_LIMIT_MS = 5_000

_SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


class ConnectionRefusal(NamedTuple):
    """Why there is no connection.

    Args:
        text: the broker's behaviour, and what to fix.
    """

    code: str
    text: str


_SASL_NOT_EXPECTED = ConnectionRefusal(
    "sasl_not_expected", "does not ask for a user on this listener: check ASSAY_STREAM_SECURITY_PROTOCOL and the port"
)

_BY_CLASS: Mapping[str, ConnectionRefusal] = {
    "SaslAuthenticationFailed": ConnectionRefusal(
        "sasl_refused",
        "refuses the user name or the password: check ASSAY_STREAM_SASL_USERNAME, ASSAY_STREAM_SASL_PASSWORD (or "
        "_PASSWORD_FILE), and that the broker has credentials of this user for ASSAY_STREAM_SASL_MECHANISM. It may "
        "refuse a token for its issuer, its audience or its end: see the broker's log",
    ),
    "UnsupportedSaslMechanismError": ConnectionRefusal(
        "sasl_mechanism_refused",
        "does not take this mechanism: set ASSAY_STREAM_SASL_MECHANISM to one that its listener has enabled",
    ),
    "IllegalSaslStateError": _SASL_NOT_EXPECTED,
    "IllegalSaslState": _SASL_NOT_EXPECTED,
}

_NAME_DIFFERS = ConnectionRefusal(
    "broker_name_differs",
    "shows a certificate for another name: name the broker in ASSAY_STREAM_BOOTSTRAP_SERVERS as its certificate does, "
    "or give it a certificate with this name",
)
_NOT_TRUSTED = ConnectionRefusal(
    "broker_not_trusted",
    "shows a certificate of an authority that is not trusted here: set ASSAY_STREAM_SSL_CAFILE to the certificate of "
    "the authority that signed it",
)
_BY_VERIFY_CODE = {
    9: ConnectionRefusal(
        "broker_certificate_expired", "shows a certificate that is not valid yet: check the clocks of both machines"
    ),
    10: ConnectionRefusal("broker_certificate_expired", "shows a certificate that has expired: renew it on the broker"),
    62: _NAME_DIFFERS,
    64: _NAME_DIFFERS,
}
"""By OpenSSL's X509_V_ERR_* codes."""


async def why_refused(connection: Mapping[str, Any]) -> AssayStreamError | None:
    """Return why none of the brokers can be used; ``None`` if one can, or if they are just unreachable.

    An ``OperatingError`` passes by itself: whoever issues the tokens cannot be reached.
    """
    # Imported here: a tap that writes to a file starts faster without it.
    from aiokafka.conn import collect_hosts, create_conn
    from aiokafka.errors import SaslAuthenticationFailed
    from aiokafka.protocol.metadata import MetadataRequest

    options = {name: value for name, value in connection.items() if name != "bootstrap_servers"}
    found: ConfigurationError | None = None
    for host, port, _ in collect_hosts(connection["bootstrap_servers"]):
        try:
            made = await create_conn(host, port, request_timeout_ms=_LIMIT_MS, **options)
            # A broker that refuses a token expects one more answer first (RFC 7628, section 3.2.3), which aiokafka
            # does not give. It answers the next request as if it knew of nothing.
            is_token = options.get("sasl_mechanism") == "OAUTHBEARER"
            if is_token and not (await made.send(MetadataRequest([]))).brokers:
                raise SaslAuthenticationFailed
        except Exception as error:  # noqa: BLE001 - whatever it is, it is only looked at
            if isinstance(error.__cause__, AssayStreamError):  # there is no token to show
                return error.__cause__
            refusal = _refusal_of(error, is_sasl=options.get("security_protocol") in _SASL_PROTOCOLS)
            if refusal is not None:
                code, text = refusal
                found = found or ConfigurationError(code, f"the broker at {host}:{port} {text}")
        else:
            made.close()
            return None
    return found


async def why_away(error: Exception, connection: Mapping[str, Any] | None) -> str:
    """Return for a log what keeps a process from the brokers, and what to fix.

    Args:
        error: what ended the last attempt.
        connection: asked of the brokers once more where the error does not say; ``None`` where that cannot be done.
    """
    known = explained(error)
    if isinstance(known, ConfigurationError | IntegrityError):
        return str(known)
    refused = None if connection is None else await why_refused(connection)
    if refused is None and (isinstance(error, OSError) or type(error).__name__ == "KafkaConnectionError"):
        return "broker_unreachable: no broker answers. Start it, or correct the address of the brokers"
    return str(refused or known or type(error).__name__)


def explained(error: BaseException) -> AssayStreamError | None:
    """Translate a Kafka client error for the operator; ``None`` for any other error.

    Args:
        error: matched by class name, so that aiokafka is not needed here.
    """
    if isinstance(error, AssayStreamError):
        return error
    kind = type(error)
    if kind is MemoryError:
        return OperatingError("out_of_memory", "the process is out of memory: give it more")
    if not kind.__module__.startswith("aiokafka"):
        return None
    if "Authorization" in kind.__name__:
        # aiokafka names topics, a group or a transactional id, where it knows them.
        known = next(iter(error.args), None)
        named = [known] if isinstance(known, str) else sorted(known or ())
        return ConfigurationError(
            "not_authorized",
            f"the brokers do not allow this user to do that ({' '.join([kind.__name__, *named])}): "
            "`assay-stream topics acls` prints what each role needs",
        )
    return OperatingError("brokers_failing", f"the brokers failed ({kind.__name__}): see their logs")


def _refusal_of(error: Exception, *, is_sasl: bool) -> ConnectionRefusal | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _BY_VERIFY_CODE.get(error.verify_code, _NOT_TRUSTED)
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return ConnectionRefusal(
            "broker_without_tls", "does not speak TLS on this port: check the port and ASSAY_STREAM_SECURITY_PROTOCOL"
        )
    if is_sasl and isinstance(error, ValueError):
        return ConnectionRefusal(
            "broker_not_genuine",
            "cannot show that it knows the password: it may be an impostor. Check ASSAY_STREAM_BOOTSTRAP_SERVERS",
        )
    return _BY_CLASS.get(type(error).__name__)
