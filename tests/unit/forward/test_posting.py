"""What may be logged of an address, and that proxies of the environment are not used."""

from __future__ import annotations

import pytest

from assay_stream.forward.delivery import DELIVERED, DeliveryOutcome
from assay_stream.forward.posting import Poster, place_of
from tests.support.deployment import free_port
from tests.support.receivers import WebhookServer


def test_a_place_has_no_path_user_or_query() -> None:
    """They may be secrets."""
    assert place_of("https://u:secret@hooks.example.com:8443/secret?key=secret") == "https://hooks.example.com:8443"


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alerts go where the operator says, and nowhere else."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with WebhookServer(free_port()) as server:
        poster = Poster(headers={"Idempotency-Key": "k"}, timeout_s=5.0, tls=True)
        assert (await poster.post(server.url, b"{}")).result == DELIVERED
        await poster.close()


async def test_a_host_that_no_encoding_takes_ends_nothing() -> None:
    """One receiver's address must not end the process that serves the others."""
    poster = Poster(headers={}, timeout_s=5.0, tls=True)
    assert (await poster.post("https://xn--a/", b"{}")).result.outcome is DeliveryOutcome.UNAVAILABLE
    await poster.close()
