"""Who may publish, and as whom."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from assay_stream.errors import ConfigurationError
from assay_stream.ingest.requests import KnownClients, Unauthorized, hash_of, new_token, read_clients
from assay_stream.ingest.service import ClientFile, ClientWatch
from assay_stream.worker.telemetry import Health, Metrics
from tests.support.errors import raises_code
from tests.support.toml import toml_of

TOKEN, OTHER = new_token(), new_token()
NOW_US = 1_800_000_000_000_000


def clients(*entries: dict[str, Any]) -> KnownClients:
    return read_clients(toml_of({"clients": entries}).encode(), "clients.toml")


def entry(observer: str = "gw-1", **fields: Any) -> dict[str, Any]:
    return {"observer_id": observer, "servers": ["time"], "token": hash_of(TOKEN)} | fields


def refused(known: KnownClients, *authorization: str, names: tuple[str, ...] = (), now_us: int = NOW_US) -> str:
    with pytest.raises(Unauthorized) as caught:
        known.of(authorization, names, now_us=now_us)
    return str(caught.value)


def test_a_token_names_its_client() -> None:
    """By its hash, whatever the case of the scheme."""
    known = clients(entry(), entry("gw-2", token=hash_of(OTHER)))
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert known.of([f"{scheme} {OTHER}"], [], now_us=NOW_US).observer_id == "gw-2"


@pytest.mark.parametrize(
    "authorization",
    [
        (),
        ("",),
        ("Bearer",),
        (TOKEN,),
        (f"Basic {TOKEN}",),
        (f"Bearer {TOKEN}x",),
        (f"Bearer {TOKEN[:-1]}",),
        (f"Bearer {hash_of(TOKEN)}",),
        (f"Bearer {new_token()}",),
        (f"Bearer {TOKEN}", f"Bearer {TOKEN}"),
        (f"Bearer {TOKEN}, Bearer {TOKEN}",),
    ],
)
def test_nothing_else_names_it(authorization: tuple[str, ...]) -> None:
    """The hash in the file is no token, and a field that stands there twice is none either. No text quotes anything."""
    assert TOKEN[:8] not in refused(clients(entry()), *authorization)


@pytest.mark.parametrize("expires", ["2027-01-15T08:00:00Z", "2027-01-15T09:00:00+01:00", '"2027-01-15T08:00:00Z"'])
def test_a_token_counts_until_it_expires(expires: str) -> None:
    """A time of TOML, or a text. To the microsecond, by the time of the request."""
    raw = toml_of({"clients": [entry(expires="then")]}).replace('"then"', expires)
    known = read_clients(raw.encode(), "clients.toml")
    end_us = 1_800_000_000_000_000
    assert known.of([f"Bearer {TOKEN}"], [], now_us=end_us - 1).observer_id == "gw-1"
    assert "expired" in refused(known, f"Bearer {TOKEN}", now_us=end_us)


def test_a_certificate_names_its_client_too() -> None:
    """By an alternative name; two clients at once are nobody."""
    known = clients(entry(), {"observer_id": "gw-2", "servers": ["*"], "certificate": "DNS:gw-2.internal"})
    names = ("DNS:other", "DNS:gw-2.internal")
    assert known.of([], names, now_us=NOW_US).observer_id == "gw-2"
    refused(known, names=("DNS:other",))
    assert "different" in refused(known, f"Bearer {TOKEN}", names=names)


def test_a_client_reports_on_its_servers_only() -> None:
    client = clients(entry(servers=["time", "git-*"])).of([f"Bearer {TOKEN}"], [], now_us=NOW_US)
    assert [client.may_report_on(name) for name in ("time", "git-hub", "git-", "times", "atime", "", "mail")] == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    "bad",
    [
        {"token": TOKEN},
        {"token": 1},
        {"token": "sha256:0"},
        {"certificate": "DNS:a"},
        {"servers": []},
        {"servers": "time"},
        {"servers": ["[a"]},
        {"servers": [["time"]]},
        {"observer_id": " "},
        {"observer_id": ["gw"]},
        {"expires": "tomorrow"},
        {"expires": "2027-01-01T00:00:00"},
        {"server": "time"},
    ],
)
def test_a_wrong_entry_is_named_and_not_quoted(bad: dict[str, Any]) -> None:
    """A token that somebody wrote there must not get into a log."""
    with raises_code("bad_clients", kind=ConfigurationError) as caught:
        clients(entry("gw-0", token=hash_of(OTHER)), entry(**bad))
    assert "entry 2" in caught.value.message
    assert TOKEN not in caught.value.message


def test_a_misspelt_field_of_a_client_is_named_with_those_there_are() -> None:
    """What it holds may be a token."""
    with raises_code("bad_clients", kind=ConfigurationError) as caught:
        clients(entry(expire=TOKEN))
    why = "there is no field 'expire': the only fields are observer_id, servers, token, certificate, expires"
    assert caught.value.message == f"clients.toml, entry 1: {why}"


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"clients = []", b"clients = {}", b"{", b"\xff", b"clients = [{}]\nmore = 1", b"clients: []"]
)
def test_a_file_without_clients_is_refused(raw: bytes) -> None:
    """An empty one would let nobody in, and nobody would notice."""
    with pytest.raises(ConfigurationError):
        read_clients(raw, "clients.toml")


def test_one_token_is_one_client() -> None:
    """Two entries of one token would make it a matter of order who is meant."""
    with pytest.raises(ConfigurationError):
        clients(entry(), entry("gw-2"))


def test_a_broken_edit_leaves_the_last_good_clients_and_is_logged_once_per_change(tmp_path: Path) -> None:
    """Without a request: nobody may send for hours. What is put right counts at once, though its stamp is the same."""
    path = tmp_path / "clients.toml"
    path.write_text(toml_of({"clients": [entry()]}))
    file = ClientFile(path)
    path.write_text(toml_of({"clients": [entry(servers=[])]}))
    with capture_logs() as logs:
        for _ in range(3):
            file.look()
        assert [each["event"] for each in logs] == ["clients_not_read"]
        assert "entry 1" in str(file.error)
        assert len(file()) == 1
        path.write_text(toml_of({"clients": [entry(), entry("gw-2", servers=[])]}))
        file.look()
        path.write_text(toml_of({"clients": [entry(), entry("gw-2", token=hash_of(OTHER))]}))
        file.look()
        file.look()
    assert [each["event"] for each in logs] == ["clients_not_read", "clients_not_read", "clients_read"]
    assert file.error is None
    assert len(file()) == 2


async def test_metrics_and_readiness_name_a_broken_file_of_clients(tmp_path: Path) -> None:
    """And ingest stays ready: out of the balancer, no client could send."""
    path = tmp_path / "clients.toml"
    path.write_text(toml_of({"clients": [entry()]}))
    metrics, health = Metrics(CollectorRegistry()), Health()
    watch = ClientWatch(ClientFile(path), metrics)
    health.watch("clients", watch)
    path.unlink()
    running = asyncio.create_task(watch.run())
    await asyncio.sleep(0)
    watch.stop()
    await running
    assert b"assay_stream_clients_stale 1.0" in metrics.text()
    status, body = health.readiness()
    assert (status, body["ready"]) == (200, True)
    assert "bad_clients: cannot read" in body["waiting_for"]
