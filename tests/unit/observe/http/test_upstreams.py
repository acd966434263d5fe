"""Which servers are behind a tap."""

from typing import Any

import pytest

from assay_stream.errors import ConfigurationError
from assay_stream.observe.http.upstreams import Upstream, listed_upstreams, routes
from tests.support.http_tap import THE_VANTAGE

ENTRY = {"server_id": "a", "url": "https://a.example/mcp", "path": "/a"}


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/mcp",
        "host/mcp",
        "https:///mcp",
        "https://u:p@host/mcp",
        "https://host/mcp?k=1",
        "https://host/#x",
        "https://host:99999/mcp",
        "https://hoßt/mcp",
        "https://[::1/mcp",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """A password in it would end up in logs."""
    with pytest.raises(ConfigurationError, match="bad_upstream"):
        Upstream(vantage=THE_VANTAGE, url=url)


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {"upstreams": []},
        {"upstreams": [ENTRY], "more": "1"},
        {"upstreams": ["a"]},
        {"upstreams": [{"server_id": "a"}]},
        {"upstreams": [ENTRY | {"token": "t"}]},
        {"upstreams": [ENTRY | {"path": "a"}]},
        {"upstreams": [ENTRY | {"path": "/a?b"}]},
        {"upstreams": [ENTRY] * 257},
    ],
)
def test_a_file_that_lists_no_servers_is_refused(content: Any) -> None:
    with pytest.raises(ConfigurationError, match="bad_upstream"):
        listed_upstreams(content, "taps.toml", THE_VANTAGE)


def test_a_misspelt_field_of_an_upstream_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError) as caught:
        listed_upstreams({"upstreams": [ENTRY, ENTRY | {"auth-context": "x"}]}, "taps.toml", THE_VANTAGE)
    why = "there is no field 'auth-context': the only fields are server_id, url, path, auth_context"
    assert caught.value.message == f"taps.toml, entry 2: {why}"


def test_a_file_lists_servers() -> None:
    """What it does not state is as for all."""
    found = listed_upstreams({"upstreams": [ENTRY, ENTRY | {"path": "/b", "auth_context": "x"}]}, "f", THE_VANTAGE)
    assert [(each.path, each.vantage.server_id, each.vantage.auth_context) for each in found] == [
        ("/a", "a", None),
        ("/b", "a", "x"),
    ]
    assert all(each.vantage.observer_id == THE_VANTAGE.observer_id for each in found)


def test_two_servers_cannot_have_one_path() -> None:
    """Which of them would a client reach?"""
    upstream = Upstream(vantage=THE_VANTAGE, url="https://a.example/mcp")
    with pytest.raises(ConfigurationError, match="two servers"):
        routes([upstream, upstream])
