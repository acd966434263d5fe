"""SchemaPin discovery documents as observations: fetched over HTTPS and published, successful or not.

The stream itself never uses the network. What a domain served enters as a record, so that a replay sees the same; a
failure enters too, so that the stream knows that it relies on an older document.

HTTPS only, with the certificate checked. Redirects are followed only within the same host and port. An event holds
the document and the address of a followed redirect, and nothing else that the host sent.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import aiohttp
from yarl import URL

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.control import DISCOVERY_TYPE
from assay_stream.observe.http.upstreams import open_session, read_body
from assay_stream.observe.observation import Observation, Vantage, control_event
from assay_stream.schemes.schemapin import SchemaPinErrorCode, parse_revocations, parse_well_known

WELL_KNOWN_PATH = "/.well-known/schemapin.json"
REDIRECTS_MAX = 3
"""Redirects followed. One suffices for a host that keeps its files elsewhere; three bound a loop."""

_DOMAIN = re.compile(r"(?=.{1,253}(:|$))[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*(:[0-9]{1,5})?")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_URL_CHARS_MAX = 2_048
_DOCUMENT_BYTES_MAX = DEFAULT_LIMITS.discovery_bytes_max
_REDIRECTED = {
    "invalid": "the host redirects to an invalid address",
    "elsewhere": "the host redirects elsewhere: only redirects within the same host over https are followed",
}
_REVOKED = dict.fromkeys(
    ("invalid", "elsewhere"),
    "the revocation endpoint is not an https address on the host that may serve it: "
    "check the document, then name the host with --revocation-domain",
)
_IN_AN_EVENT = replace(DEFAULT_LIMITS, depth_max=DEFAULT_LIMITS.depth_max - 2)
"""Limits of a document: the event and its data are two containers around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The result of one attempt to fetch a discovery document, in the order and under the names of its event.

    Args:
        domain: the requested domain, ``host`` or ``host:port``.
        status: ``observed`` if the host served something, else ``fetch_failed``.
        error_code: ``discovery_fetch_failed``, or ``discovery_invalid`` if the document is refused.
        revocations: the revocation document that the document refers to, exactly as received.
    """

    domain: str
    status: Literal["observed", "fetch_failed"]
    document: dict[str, Any] | None = None
    error_code: SchemaPinErrorCode | None = None
    detail: str = ""
    fetched_from: str
    revocations: dict[str, Any] | None = None


class _FailedError(Exception):
    """The host did not serve a document."""


class _RefusedError(Exception):
    """The host serves what is no such document."""

    def __init__(self, detail: str, document: dict[str, Any] | None = None) -> None:
        self.document = document
        super().__init__(detail)


async def fetch_well_known(
    domain: str, *, timeout_s: float = 10.0, ca_file: Path | None = None, revocation_domain: str | None = None
) -> Fetched:
    """Fetch the discovery document of a domain, and the revocation document that it refers to.

    External failures are part of the result. An unavailable revocation document is one: an attacker able to withhold it
    must not be able to bring a revoked key back.

    Args:
        timeout_s: seconds for everything together, redirects included.
        ca_file: PEM file with the only certificate authorities to accept; default: the system's.
        revocation_domain: the host that may serve the revocation document, ``host`` or ``host:port``; default: the
            domain itself.

    Raises:
        ConfigurationError: ``bad_domain`` or ``bad_tls_file``.
    """
    visit = _Visit(well_known_url(domain))
    allowed = well_known_url(revocation_domain or domain)
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        why = f"{ca_file} cannot be used as CA certificates (PEM): {error.strerror}"
        raise ConfigurationError("bad_tls_file", why) from None
    found = Fetched(domain=domain, fetched_from=visit.url, status="observed")
    try:
        async with asyncio.timeout(timeout_s), open_session(context, aiohttp.ClientTimeout(total=timeout_s)) as session:
            document = _checked(await visit.get(session), parse_well_known)
            found = replace(found, fetched_from=visit.url, document=document)
            endpoint = parse_well_known(document).revocation_endpoint
            if endpoint is None:
                return found
            visit = _Visit(_same_host(endpoint, allowed, None, **_REVOKED))
            raw = await visit.get(session)
        try:
            return replace(found, fetched_from=visit.url, revocations=_checked(raw, parse_revocations))
        except _RefusedError as error:
            raise _RefusedError(f"the revocation document is refused: {error}", document) from None
    except _RefusedError as error:
        # As observed: it must not look like a network failure.
        code, detail, document_or_none = SchemaPinErrorCode.DISCOVERY_INVALID, str(error), error.document
        return replace(found, fetched_from=visit.url, document=document_or_none, error_code=code, detail=detail)
    except (_FailedError, TimeoutError, aiohttp.ClientError, OSError, UnicodeError) as error:
        return Fetched(
            domain=domain,
            fetched_from=visit.url,
            status="fetch_failed",
            error_code=SchemaPinErrorCode.DISCOVERY_FETCH_FAILED,
            detail=_reason(error, timeout_s),
        )


def well_known_url(domain: str) -> str:
    if not _DOMAIN.fullmatch(domain.lower()) or int(domain.partition(":")[2] or 0) > 65_535:
        raise ConfigurationError(
            "bad_domain", "write the domain as example.com or example.com:8443, in ASCII, without https:// or a path"
        )
    return f"https://{domain.lower()}{WELL_KNOWN_PATH}"


def discovery_event(vantage: Vantage, fetched: Fetched, *, event_id: str, observed_at: datetime) -> Observation:
    data = {"server_id": vantage.server_id, **asdict(fetched)}
    if fetched.revocations is None:
        del data["revocations"]
    return control_event(vantage.source, DISCOVERY_TYPE, data, event_id=event_id, at=observed_at)


@dataclass
class _Visit:
    """One request and the redirects it leads to; ``url`` is the latest address."""

    url: str

    async def get(self, session: aiohttp.ClientSession) -> bytes:
        # Any other encoding would have to be decoded before its length is known.
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        for _ in range(REDIRECTS_MAX + 1):
            async with session.get(URL(self.url), headers=headers, allow_redirects=False) as response:
                if response.status in _REDIRECTS:
                    self.url = _same_host(response.headers.get("location", ""), self.url, self.url, **_REDIRECTED)
                    continue
                if response.status != 200:
                    raise _FailedError(f"the host answered with status {response.status}")
                if response.headers.get("content-encoding", "identity").lower() != "identity":
                    raise _FailedError("the host answered in an encoding that was not requested")
                body = await read_body(response, _DOCUMENT_BYTES_MAX)
                if len(body) > _DOCUMENT_BYTES_MAX:
                    raise _RefusedError(f"the document has more than {_DOCUMENT_BYTES_MAX} bytes")
                return body
        raise _FailedError(f"the host redirects more than {REDIRECTS_MAX} times")


def _same_host(text: str, url: str, base: str | None, *, invalid: str, elsewhere: str) -> str:
    """Return an address of the host of ``url``, https and without credentials; raises ``_FailedError``."""
    if not text or len(text) > _URL_CHARS_MAX or not text.isprintable():
        raise _FailedError(invalid)
    try:
        there = URL(text) if base is None else URL(base).join(URL(text))
    except ValueError:
        raise _FailedError(invalid) from None
    if there.user or there.password:
        raise _FailedError(invalid)
    here = URL(url)
    if (there.scheme, there.host, there.port) != ("https", here.host, here.port):
        raise _FailedError(elsewhere)
    return str(there.with_fragment(None))


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, _FailedError):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"no complete answer within {timeout_s:g} s"
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return f"the host's certificate is not valid: {error.__cause__.verify_message}"
    # The library's messages may quote what the host sent.
    return f"the request failed: {type(error).__name__}"


def _checked(raw: bytes, parse: Callable[[bytes], object]) -> dict[str, Any]:
    try:
        document = decode_json(raw, limits=_IN_AN_EVENT)
    except InputError as error:
        raise _RefusedError(error.message) from None
    if not isinstance(document, dict):
        raise _RefusedError("the document is not a JSON object")
    try:
        parse(raw)
    except InputError as error:
        raise _RefusedError(error.message, document) from None
    return document
