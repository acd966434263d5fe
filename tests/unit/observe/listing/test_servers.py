"""What the configuration of ``list-watch`` may hold."""

import math
from typing import Any

import pytest

from assay_stream.errors import ConfigurationError
from assay_stream.observe import Vantage
from assay_stream.observe.list_transport import ListedServer, listed_servers
from tests.support.errors import raises_code

OBSERVER = Vantage(server_id="-", observer_id="lister", server_scoped=True)
URL = "https://docs.example/mcp"


def read(content: object) -> list[ListedServer]:
    return listed_servers(content, "servers.toml", OBSERVER)


def test_a_server_has_what_the_file_says_and_defaults() -> None:
    """Its own interval goes before that of the file."""
    docs, time = read(
        {
            "interval_s": 600,
            "servers": [
                {
                    "server_id": "docs",
                    "url": URL,
                    "token_file": "/run/docs",
                    "interval_s": 60,
                    "auth_context": "support",
                },
                {"server_id": "time", "command": ["uvx", "mcp-server-time"], "env_files": {"KEY": "/run/key"}},
            ],
        }
    )
    assert (docs.interval_s, docs.vantage.auth_context, docs.host, docs.listen) == (60, "support", "docs.example", True)
    assert (time.interval_s, time.command, time.host) == (600, ("uvx", "mcp-server-time"), "")
    assert docs.vantage.server_scoped


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"url": URL, "command": ["x"]},
        {"url": "ftp://docs.example/mcp"},
        {"url": "https://user:password@docs.example/mcp"},
        {"url": "https://docs.example/mcp?token=secret"},
        {"url": "https://docs.example:0/mcp"},
        {"url": "https://docs.example/a b"},
        {"url": URL, "token": "secret"},
        {"url": URL, "token_file": 7},
        {"url": URL, "token_header": "Host"},
        {"url": URL, "token_header": "A: b"},
        {"url": URL, "env_files": {"KEY": "/run/key"}},
        {"url": URL, "interval_s": 0},
        {"url": URL, "interval_s": math.nan},
        {"url": URL, "interval_s": True},
        {"url": URL, "interval_s": "60"},
        {"url": URL, "interval_s": "soon"},
        {"url": URL, "interval_s": []},
        {"url": URL, "listen": "yes"},
        {"url": URL, "auth_context": []},
        {"command": "uvx mcp-server-time"},
        {"command": ["x"], "env_files": {"A=B": "/run/key"}},
        {"command": ["x"], "token_file": "/run/key"},
        "docs",
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(entry: Any) -> None:
    """And quotes nothing, since a secret may stand in the wrong place."""
    server = {"server_id": "docs", **entry} if isinstance(entry, dict) else entry
    with raises_code("bad_servers", kind=ConfigurationError) as caught:
        read({"servers": [server]})
    assert "servers.toml, server 1" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "servers.toml: servers must be a list of 1 to"),
        ([], "servers.toml: servers must be a list of 1 to"),
        ({"servers": [], "token": "x"}, "servers.toml: servers must be a list of 1 to"),
        ({"servers": {}, "interval_s": "soon"}, "servers.toml: interval_s must be "),
        (
            {"servers": [{"server_id": "docs", "url": URL}], "token": "x"},
            "servers.toml: there is no field 'token': the only fields are interval_s, servers",
        ),
        (
            {"servers": [{"server_id": "docs", "url": URL, "token-file": "x"}]},
            "server 1: there is no field 'token-file': the only fields are server_id, ",
        ),
        (
            {"servers": [{"server_id": "docs", "url": URL, "token_header": "A: b"}]},
            "server 1: token_header must be the name",
        ),
        ({"servers": [{"server_id": "docs", "command": ["x", 1]}]}, "server 1: command must be a list of texts"),
        (
            {"servers": [{"server_id": "docs", "command": ["x"], "env_files": {"A=B": "f"}}]},
            "env_files must give the name",
        ),
    ],
)
def test_a_refusal_says_which_field_must_be_what(content: object, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(content)
    assert said in str(caught.value)


@pytest.mark.parametrize("content", [None, [], {}, {"servers": []}, {"servers": {}}, {"servers": [], "token": "x"}])
def test_a_file_that_names_no_servers_is_refused(content: object) -> None:
    """Nothing starts on half a configuration."""
    with raises_code("bad_servers", kind=ConfigurationError):
        read(content)


def test_two_servers_of_one_name_must_differ_in_their_rights() -> None:
    """Otherwise their lists would be taken for one another's."""
    one = {"server_id": "docs", "url": URL}
    with pytest.raises(ConfigurationError, match="two servers"):
        read({"servers": [one, one]})
    assert len(read({"servers": [one, {**one, "auth_context": "admin"}]})) == 2
