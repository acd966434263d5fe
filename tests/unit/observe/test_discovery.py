"""Discovery documents over real HTTPS, and the events they become."""

import gzip
import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import ConfigurationError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Role
from assay_stream.observe.discovery import REDIRECTS_MAX, Fetched, discovery_event, fetch_well_known, well_known_url
from assay_stream.observe.recorded import from_observations
from assay_stream.schemes.schemapin import SchemaPinErrorCode
from tests.support.deployment import free_port
from tests.support.errors import raises_code
from tests.support.https_server import Answer, Authority, HttpsServer, serve
from tests.support.mcp_dialogue import THE_VANTAGE
from tests.support.schemapin import a_document

PATH = "/.well-known/schemapin.json"
DOCUMENT = a_document(revoked_keys=[], later_field={"x": [1.0, 10**25]})
RAW = json.dumps(DOCUMENT).encode()
AT = datetime(2026, 11, 21, 2, 6, 7, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Path:
    return authority.issue("localhost")


async def fetched(authority: Authority, certificate: Path | None, answer: Answer, **options: Any) -> Fetched:
    with HttpsServer(answer, certificate) as server:
        return await fetch_well_known(server.domain, ca_file=authority.file, **options)


async def redirected(authority: Authority, certificate: Path, location: str) -> tuple[Fetched, HttpsServer]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        serve(b"", 302, Location=location.format(port=request.server.server_port))(request)  # type: ignore[attr-defined]

    with HttpsServer(answer, certificate) as server:
        return await fetch_well_known(server.domain, ca_file=authority.file), server


def failed(found: Fetched, *words: str) -> bool:
    assert (found.status, found.document) == ("fetch_failed", None)
    assert found.error_code is SchemaPinErrorCode.DISCOVERY_FETCH_FAILED
    return all(word in found.detail for word in words)


def refused(found: Fetched, *words: str) -> bool:
    assert (found.status, found.error_code) == ("observed", SchemaPinErrorCode.DISCOVERY_INVALID)
    return all(word in found.detail for word in words)


class TestFetch:
    async def test_a_document(self, authority: Authority, certificate: Path) -> None:
        """It is observed exactly as it was served, and asked for at its one address."""
        with HttpsServer(serve(RAW), certificate) as server:
            found = await fetch_well_known(server.domain, ca_file=authority.file)
        assert found == Fetched(
            domain=server.domain, fetched_from=f"https://{server.domain}{PATH}", status="observed", document=DOCUMENT
        )
        assert server.paths == [PATH]

    @pytest.mark.parametrize("status", [204, 403, 404, 500, 304])
    async def test_any_other_status(self, authority: Authority, certificate: Path, status: int) -> None:
        """The fetch failed, and the status is named."""
        body = b"" if status in (204, 304) else b"{}"
        assert failed(await fetched(authority, certificate, serve(body, status)), str(status))

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_a_redirect_within_the_host(self, authority: Authority, certificate: Path, status: int) -> None:
        """It is followed, and the last address is named."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            if request.path == PATH:
                serve(b"", status, Location="/elsewhere.json#part")(request)
            else:
                serve(RAW)(request)

        found = await fetched(authority, certificate, answer)
        assert found.document == DOCUMENT
        assert found.fetched_from == f"https://{found.domain}/elsewhere.json"

    @pytest.mark.parametrize(
        "location",
        [
            "https://example.com/.well-known/schemapin.json",
            "https://127.0.0.1:{port}/x.json",
            "https://localhost:1/x.json",
            "https://localhost/x.json",
            "http://localhost:{port}/x.json",
            "//example.com/x.json",
            "https://localhost.:{port}/x.json",
        ],
    )
    async def test_a_redirect_elsewhere(self, authority: Authority, certificate: Path, location: str) -> None:
        """Another host, another port and plain HTTP are not followed."""
        found, server = await redirected(authority, certificate, location)
        assert failed(found, "redirects elsewhere")
        assert server.paths == [PATH]
        assert found.fetched_from == f"https://{server.domain}{PATH}"

    @pytest.mark.parametrize(
        "location", ["", "https://me:secret@localhost:{port}/", "https://[secret", "/secret\x01", "/" + "x" * 3_000]
    )
    async def test_a_redirect_to_nowhere(self, authority: Authority, certificate: Path, location: str) -> None:
        """What is no plain address is not followed, and not quoted."""
        found, server = await redirected(authority, certificate, location)
        assert failed(found)
        assert server.paths == [PATH]
        assert "secret" not in found.fetched_from + found.detail

    async def test_a_redirect_without_end(self, authority: Authority, certificate: Path) -> None:
        """A circle of redirects is left after a few turns."""
        with HttpsServer(serve(b"", 302, Location=PATH), certificate) as server:
            found = await fetch_well_known(server.domain, ca_file=authority.file)
        assert failed(found, "redirects more than")
        assert len(server.paths) == REDIRECTS_MAX + 1

    async def test_a_body_that_never_ends(self, authority: Authority, certificate: Path) -> None:
        """Reading stops at the limit: the server cannot get rid of its ten megabytes."""
        written: list[int] = []
        ended = threading.Event()

        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(200)
            request.send_header("Content-Length", "10000000")
            request.end_headers()
            try:
                written.extend(request.wfile.write(b" " * 10_000) for _ in range(1_000))
            finally:
                ended.set()

        found = await fetched(authority, certificate, answer)
        assert refused(found, str(DEFAULT_LIMITS.discovery_bytes_max))
        assert found.document is None
        assert ended.wait(10)
        assert sum(written) < 10_000_000

    async def test_a_document_of_exactly_the_limit(self, authority: Authority, certificate: Path) -> None:
        body = RAW + b" " * (DEFAULT_LIMITS.discovery_bytes_max - len(RAW))
        assert (await fetched(authority, certificate, serve(body))).document == DOCUMENT
        assert refused(await fetched(authority, certificate, serve(body + b" ")), "bytes")

    async def test_a_compressed_answer(self, authority: Authority, certificate: Path) -> None:
        """An encoding that was not asked for is refused unread: it could hold any amount."""
        answer = serve(gzip.compress(RAW), Content_Encoding="gzip")
        assert failed(await fetched(authority, certificate, answer), "encoding")

    @pytest.mark.parametrize("speaks", [0, 1], ids=["silent", "dripping"])
    async def test_a_slow_host(self, authority: Authority, certificate: Path, speaks: int) -> None:
        """The time-out is for the whole: a byte now and then does not lengthen it."""
        over = threading.Event()

        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(200)
            request.end_headers()
            while not over.wait(0.05):
                request.wfile.write(b" " * speaks)

        with HttpsServer(answer, certificate) as server:
            found = await fetch_well_known(server.domain, ca_file=authority.file, timeout_s=0.5)
            over.set()
        assert failed(found, "0.5 s")

    async def test_nobody_there(self, authority: Authority) -> None:
        """A refused connection is a failed fetch."""
        found = await fetch_well_known(f"localhost:{free_port()}", ca_file=authority.file)
        assert failed(found, "request failed")

    async def test_a_host_without_tls(self, authority: Authority) -> None:
        """Plain HTTP is never spoken, not even to a host that speaks nothing else."""
        with HttpsServer(serve(RAW), None) as server:
            found = await fetch_well_known(server.domain, ca_file=authority.file)
        assert failed(found)
        assert PATH not in server.paths

    async def test_a_host_that_hangs_up(self, authority: Authority, certificate: Path) -> None:
        """An answer that ends early is a failed fetch, and what was sent is not quoted."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            request.wfile.write(b"secret and no HTTP\r\n\r\n")

        found = await fetched(authority, certificate, answer)
        assert failed(found, "request failed")
        assert "secret" not in found.detail

    async def test_a_body_cut_short(self, authority: Authority, certificate: Path) -> None:
        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(200)
            request.send_header("Content-Length", str(len(RAW)))
            request.end_headers()
            request.wfile.write(RAW[:-10])

        assert failed(await fetched(authority, certificate, answer), "request failed")


REVOCATIONS_PATH = "/.well-known/schemapin-revocations.json"
REVOCATIONS = {
    "schemapin_version": "1.2",
    "domain": "localhost",
    "updated_at": "2026-11-21T00:00:00Z",
    "revoked_keys": [{"fingerprint": "sha256:" + "ab" * 32, "revoked_at": "x", "reason": "superseded"}],
}


class TestRevocations:
    async def fetched(
        self, authority: Authority, certificate: Path, served: bytes, *, host: str = "", **options: Any
    ) -> Fetched:
        """What a client gets where the document names an endpoint on the same host, or on another one."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            endpoint = f"https://{host or request.headers['host']}{REVOCATIONS_PATH}"
            document = json.dumps(DOCUMENT | {"revocation_endpoint": endpoint}).encode()
            serve(served if request.path == REVOCATIONS_PATH else document)(request)

        with HttpsServer(answer, certificate) as server:
            return await fetch_well_known(server.domain, ca_file=authority.file, **options)

    async def test_it_is_fetched_and_published_beside_the_document(
        self, authority: Authority, certificate: Path
    ) -> None:
        found = await self.fetched(authority, certificate, json.dumps(REVOCATIONS).encode())
        assert (found.status, found.error_code, found.revocations) == ("observed", None, REVOCATIONS)
        event = discovery_event(THE_VANTAGE, found, event_id="e", observed_at=AT)
        assert decode_json(event.value)["data"]["revocations"] == REVOCATIONS

    async def test_one_that_cannot_be_read_makes_the_whole_invalid(
        self, authority: Authority, certificate: Path
    ) -> None:
        """What it would have revoked is not known."""
        assert refused(await self.fetched(authority, certificate, b"{}"), "revocation document")

    async def test_one_on_another_host_is_not_asked_for(self, authority: Authority, certificate: Path) -> None:
        """A document must not send the operator's machine wherever it likes; the operator may name the host."""
        found = await self.fetched(authority, certificate, b"", host="169.254.169.254")
        assert failed(found, "--revocation-domain")
        found = await self.fetched(
            authority, certificate, b"", host=f"localhost:{free_port()}", revocation_domain="localhost"
        )
        assert failed(found, "--revocation-domain")


class TestCertificates:
    async def test_an_unknown_authority(self, certificate: Path) -> None:
        """A certificate of an authority outside the usual ones is refused."""
        with HttpsServer(serve(RAW), certificate) as server:
            found = await fetch_well_known(server.domain)
        assert failed(found, "certificate is not valid")
        assert server.paths == []

    async def test_another_authority(self, tmp_path: Path, certificate: Path) -> None:
        """With a CA file no authority outside of it counts, whatever it calls itself."""
        assert failed(await fetched(Authority(tmp_path), certificate, serve(RAW)), "certificate is not valid")

    @pytest.mark.parametrize(("host", "days"), [("example.com", 1), ("localhost", -1)])
    async def test_a_certificate_that_does_not_fit(self, authority: Authority, host: str, days: int) -> None:
        """A certificate for another host or of another time is refused."""
        found = await fetched(authority, authority.issue(host, days=days), serve(RAW))
        assert failed(found, "certificate is not valid")

    async def test_a_certificate_for_an_address(self, authority: Authority) -> None:
        with HttpsServer(serve(RAW), authority.issue("127.0.0.1")) as server:
            found = await fetch_well_known(f"127.0.0.1:{server.port}", ca_file=authority.file)
        assert found.document == DOCUMENT

    @pytest.mark.parametrize("content", [None, b"", b"no certificate"])
    async def test_a_bad_ca_file(self, tmp_path: Path, content: bytes | None) -> None:
        """A CA file that cannot be used is the operator's to mend."""
        path = tmp_path / "ca.pem"
        if content is not None:
            path.write_bytes(content)
        with raises_code("bad_tls_file", kind=ConfigurationError):
            await fetch_well_known("localhost", ca_file=path)


class TestContent:
    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"<html>secret</html>",
            b"[]",
            b"\xff",
            b'{"schema_version":"1.1","schema_version":"1.1"}',
            b'{"x":"\\ud800"}',
            b'{"x":' * 126 + b"1" + b"}" * 126,
        ],
    )
    async def test_what_is_no_object(self, authority: Authority, certificate: Path, raw: bytes) -> None:
        """It is observed as invalid, without the document, and without a word of it."""
        found = await fetched(authority, certificate, serve(raw))
        assert refused(found)
        assert found.document is None
        assert found.detail
        assert "secret" not in found.detail

    @pytest.mark.parametrize("document", [{}, {"schema_version": "1.1"}, a_document(revoked_keys="all")])
    async def test_an_object_that_is_no_document(
        self, authority: Authority, certificate: Path, document: dict[str, Any]
    ) -> None:
        """It is observed as invalid, and kept: it is what was served."""
        found = await fetched(authority, certificate, serve(json.dumps(document).encode()))
        assert refused(found)
        assert found.document == document


class TestDomain:
    @pytest.mark.parametrize("domain", ["example.com", "Example.COM", "a-b.example.com:65535", "xn--bcher-kva.ch"])
    def test_domains(self, domain: str) -> None:
        """A host name with or without a port."""
        assert well_known_url(domain) == f"https://{domain.lower()}{PATH}"

    @pytest.mark.parametrize(
        "domain",
        [
            "",
            "http://example.com",
            "https://example.com",
            "example.com/path",
            "user@example.com",
            "example.com:",
            "example.com:123456",
            "example.com:65536",
            "example..com",
            ".example.com",
            "bücher.ch",
            "a b",
            "example.com\n",
            "x" * 64,
            "a." * 127 + "com",
            "example.com?x",
            "example.com#x",
        ],
    )
    def test_what_is_none(self, domain: str) -> None:
        """A scheme, a path, a user and anything else is refused."""
        with raises_code("bad_domain", kind=ConfigurationError):
            well_known_url(domain)


class TestEvent:
    def test_an_observed_document(self) -> None:
        """The event is a control record of the server, with the document as it was."""
        found = Fetched(domain="d", fetched_from="https://d/x", status="observed", document=DOCUMENT)
        event = discovery_event(THE_VANTAGE, found, event_id="e", observed_at=AT)
        assert (event.role, event.key) == (Role.CONTROL, b"the-server")
        assert event.timestamp_ms == int(AT.timestamp() * 1_000)
        assert decode_json(event.value) == {
            "specversion": "1.0",
            "type": "assay.control.discovery.observed",
            "source": "urn:assay-stream:observer:the-observer",
            "id": "e",
            "time": "2026-11-21T02:06:07.000000Z",
            "datacontenttype": "application/json",
            "data": {
                "server_id": "the-server",
                "domain": "d",
                "status": "observed",
                "document": DOCUMENT,
                "error_code": None,
                "detail": "",
                "fetched_from": "https://d/x",
            },
        }

    def test_a_failure(self) -> None:
        """A failed fetch is an event too, and a file of such events can be published."""
        found = Fetched(
            domain="d",
            fetched_from="https://d/x",
            status="fetch_failed",
            error_code=SchemaPinErrorCode.DISCOVERY_FETCH_FAILED,
            detail="why",
        )
        event = discovery_event(THE_VANTAGE, found, event_id="e", observed_at=AT)
        data = decode_json(event.value)["data"]
        assert (data["status"], data["document"]) == ("fetch_failed", None)
        assert (data["error_code"], data["detail"]) == ("discovery_fetch_failed", "why")
        assert list(from_observations([event.value])) == [event]
