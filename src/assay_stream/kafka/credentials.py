"""What clients show to the brokers: certificates, passwords and tokens. Files are read again when they change."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus
from weakref import WeakKeyDictionary

import orjson
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError

from assay_stream.errors import AssayStreamError, ConfigurationError, OperatingError, needing_extra
from assay_stream.files.local import secret_of_file, stamp_of

if TYPE_CHECKING:
    # What a proxy embeds does without the settings of a deployment.
    from assay_stream.config import Settings

_log = logging.getLogger(__name__)

_ANSWER_BYTES_MAX = 256 * 1_024
_ANSWER_LIMIT_S = 10
_FRESH_SHARE = 0.8
"""Share of a token's life after which a new one is asked for: brokers end a connection with its token."""
_LIFE_S = 300
"""Life of a token whose issuer states none (RFC 6749, section 5.1, recommends to)."""


def sasl_options(settings: Settings) -> dict[str, Any]:
    """Return aiokafka's arguments for SASL.

    Raises:
        ConfigurationError: ``bad_setting`` if what the mechanism needs is not set; ``extra_missing``; ``bad_tls_file``.
    """
    if settings.sasl_mechanism in ("OAUTHBEARER", "AWS_MSK_IAM"):
        return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _tokens_of(settings)}
    if settings.sasl_username is None or settings.sasl_password is None:
        raise ConfigurationError(
            "bad_setting", "SASL needs ASSAY_STREAM_SASL_USERNAME and ASSAY_STREAM_SASL_PASSWORD (or _PASSWORD_FILE)"
        )
    return {
        "sasl_mechanism": settings.sasl_mechanism,
        "sasl_plain_username": settings.sasl_username,
        "sasl_plain_password": settings.sasl_password.get_secret_value(),
    }


class RereadTls(ssl.SSLContext):
    """A client's TLS context that reads its files again for a new connection if they have changed.

    Files that cannot be used then, such as a certificate whose key is not written yet, leave it as it was.

    Args:
        cafile: authorities; ``None`` for those of the system.
        certfile, keyfile, password: of the client's certificate, if it has one.

    Raises:
        ConfigurationError: ``bad_tls_file``.
    """

    def __new__(cls, **_: object) -> RereadTls:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(
        self,
        *,
        cafile: Path | None = None,
        certfile: Path | None = None,
        keyfile: Path | None = None,
        password: str = "",
    ) -> None:
        self._cafile, self._certfile, self._keyfile, self._password = cafile, certfile, keyfile, password
        self._files = [path for path in (cafile, certfile, keyfile) if path is not None]
        self._stamps = list(map(stamp_of, self._files))
        self._current = self._opened()

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Wrap a connection as the files are now: what an event loop calls for each."""
        stamps = list(map(stamp_of, self._files))
        if stamps != self._stamps:
            try:
                self._current, self._stamps = self._opened(), stamps
            except ConfigurationError as error:
                _log.warning("the TLS files have changed, and those from before are used: %s", error)
        return self._current.wrap_bio(*args, **options)

    def _opened(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._cafile)
            if self._certfile is not None:
                # Without a password of ours OpenSSL would ask the terminal for one, and wait.
                context.load_cert_chain(self._certfile, self._keyfile, self._password)
        except (OSError, ssl.SSLError, ValueError) as error:
            text = f"cannot use the TLS files of ASSAY_STREAM_SSL_* or _SASL_TOKEN_CAFILE: {error}"
            raise ConfigurationError("bad_tls_file", text) from None
        return context


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka is not typed
    """Gives each new connection a token that is still good: brokers end a connection with its token.

    A token is used for most of its life, and to its end while there is no newer one.

    Args:
        ask: returns a new token, and how long it lives in seconds. It raises ``OperatingError`` if the issuer cannot
            be asked now, ``ConfigurationError`` if it refuses.
    """

    def __init__(
        self, ask: Callable[[], Awaitable[tuple[str, float]]], monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._monotonic_s = monotonic_s
        self._found, self._fresh_until_s, self._ends_s = "", 0.0, 0.0
        # A lock belongs to one event loop, and a command may run several, one after the other.
        self._asking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def token(self) -> str:
        """Return a token.

        Raises:
            KafkaConnectionError: if there is none now, which clients take for a broker that is away: they try again.
        """
        async with self._asking.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            now_s = self._monotonic_s()
            if now_s >= self._fresh_until_s:
                try:
                    self._found, life_s = await self._ask()
                except AssayStreamError as error:
                    if now_s >= self._ends_s or not isinstance(error, OperatingError):
                        _log.warning("no token for the brokers: %s", error)
                        raise KafkaConnectionError(f"no token: {error.code}") from error
                else:
                    self._fresh_until_s, self._ends_s = now_s + _FRESH_SHARE * life_s, now_s + life_s
            return self._found


async def ask_token_server(
    endpoint: str, client_id: str, secret_of: Callable[[], str], *, scope: str, tls: ssl.SSLContext
) -> tuple[str, float]:
    """Ask an OAuth 2.0 server for a token of a client (RFC 6749, section 4.4).

    Args:
        endpoint: the server's token endpoint.
        secret_of: returns the client's secret; asked each time, since its file may change.
        scope: empty for the server's default.
        tls: how the server is verified.
    """
    # Only a client with tokens needs it: the base install does without.
    with needing_extra("cli"):
        import aiohttp

    # Both are encoded first (RFC 6749, section 2.3.1).
    user = b64encode(f"{quote_plus(client_id)}:{quote_plus(secret_of())}".encode()).decode()
    headers = {"Authorization": f"Basic {user}"}
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    timeout = aiohttp.ClientTimeout(total=_ANSWER_LIMIT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.post(endpoint, data=form, headers=headers, ssl=tls, allow_redirects=False) as answer,
        ):
            body = await answer.content.readexactly(_ANSWER_BYTES_MAX)
    except asyncio.IncompleteReadError as whole:  # it ends before the limit
        body = whole.partial
    except (aiohttp.ClientError, OSError) as error:
        raise _unavailable(f"does not answer ({type(error).__name__})") from None
    if answer.status in (400, 401, 403):
        raise ConfigurationError(
            "token_refused",
            "the token endpoint refuses the client: check ASSAY_STREAM_SASL_CLIENT_ID, "
            "ASSAY_STREAM_SASL_CLIENT_SECRET (or _SECRET_FILE) and ASSAY_STREAM_SASL_TOKEN_SCOPE",
        )
    try:
        # Unlike json, it takes no NaN and no infinity for a number: a token would never be asked for again.
        found = orjson.loads(body) if answer.status == 200 else None
    except orjson.JSONDecodeError:
        found = None
    match found:
        case {"access_token": str(token), **rest} if token:
            life_s = rest.get("expires_in", _LIFE_S)
            return token, life_s if isinstance(life_s, int | float) else _LIFE_S
    raise _unavailable(f"gives no access_token (status {answer.status})")


def _unavailable(why: str) -> OperatingError:
    return OperatingError("token_unavailable", f"the server at ASSAY_STREAM_SASL_TOKEN_ENDPOINT {why}")


async def sign_for_amazon(region: str, sign: Callable[[str], tuple[str, int]]) -> tuple[str, float]:
    """Sign a token for Amazon MSK with the credentials that AWS's own library finds.

    Args:
        sign: returns a token for a region, and when it ends, milliseconds since the epoch.
    """
    try:
        # It may ask services for the credentials, and waits for them.
        token, until_ms = await asyncio.to_thread(sign, region)
    except Exception as error:  # noqa: BLE001 - whatever AWS's library raises; its text may quote a key
        raise OperatingError(
            "token_unavailable",
            f"no AWS credentials can be used ({type(error).__name__}): check the role or AWS_* variables",
        ) from None
    return token, until_ms / 1_000 - time.time()


async def read_token(path: Path) -> tuple[str, float]:
    """Read a token from a file that something else keeps fresh, as Kubernetes does with a projected one: each time."""
    return secret_of_file(path, variable="ASSAY_STREAM_SASL_TOKEN_FILE"), 0.0


@cache
def _tokens_of(settings: Settings) -> Tokens:
    """Return the tokens of these settings, the same for all clients, so that these share them."""
    if settings.sasl_mechanism == "AWS_MSK_IAM":
        if settings.sasl_aws_region is None:
            raise ConfigurationError("bad_setting", "AWS_MSK_IAM needs ASSAY_STREAM_SASL_AWS_REGION")
        with needing_extra("msk"):
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        return Tokens(partial(sign_for_amazon, settings.sasl_aws_region, MSKAuthTokenProvider.generate_auth_token))
    if settings.sasl_token_file is not None:
        return Tokens(partial(read_token, settings.sasl_token_file))
    endpoint, client_id, secret = settings.sasl_token_endpoint, settings.sasl_client_id, settings.sasl_client_secret
    if endpoint is None or client_id is None or secret is None:
        raise ConfigurationError(
            "bad_setting",
            "OAUTHBEARER needs ASSAY_STREAM_SASL_TOKEN_FILE, or ASSAY_STREAM_SASL_TOKEN_ENDPOINT, "
            "ASSAY_STREAM_SASL_CLIENT_ID and ASSAY_STREAM_SASL_CLIENT_SECRET (or _SECRET_FILE)",
        )

    def secret_now() -> str:
        path = settings.sasl_client_secret_file
        if path is None:
            return secret.get_secret_value()
        return secret_of_file(path, variable="ASSAY_STREAM_SASL_CLIENT_SECRET_FILE")

    tls, scope = RereadTls(cafile=settings.sasl_token_cafile), settings.sasl_token_scope
    return Tokens(partial(ask_token_server, endpoint, client_id, secret_now, scope=scope, tls=tls))
