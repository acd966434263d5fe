"""``assay-stream servers``, ``tools`` and ``observers list`` over recorded observations."""

from pathlib import Path
from typing import Any

import pytest

from assay_stream.cli.inventory import short_digest
from assay_stream.cli.store_sources import every_row
from assay_stream.readmodel.rows import DigestValue, Page, Paging
from tests.support.command import invoke as run, rows_of
from tests.support.controls import a_control
from tests.support.events import SERVER, TOOL, Story

OTHER = {**TOOL, "description": "\x1b[2J\u202eAnother one"}


@pytest.fixture
def observed(tmp_path: Path) -> Path:
    """Two definitions of a tool, two calls of it, and one of a tool that nobody listed."""
    story = Story().lists(TOOL).calls().lists(OTHER).calls().calls("ghost")
    return story.write(tmp_path / "in.ndjson")


def rows(*arguments: object) -> list[dict[str, Any]]:
    return rows_of(run(*arguments, "--json"))


def test_servers_are_listed_with_what_they_offer_and_how_much_they_are_used(observed: Path) -> None:
    """The last day is that of the latest call, in a store of files, too."""
    store = observed.with_name("store")
    run("store", "load", observed, "--store", store)
    for source in (("--input", observed), ("--store", store)):
        [row] = rows("servers", "list", *source)
        assert (row["server_id"], row["tools"], row["pinned"], row["observers"]) == (SERVER, 1, 0, 1)
        assert (row["calls"], row["calls_day"]) == (3, 3)
        assert row["called"] >= row["listed"]


def test_tools_are_listed_with_versions_and_every_digest_with_its_scheme(observed: Path) -> None:
    """A tool that was called and never listed is there too, without any digest."""
    ghost, tool = rows("tools", "list", "--input", observed)
    assert (ghost["tool_name"], ghost["is_listed"], ghost["digests"]) == ("ghost", False, [])
    assert (tool["tool_name"], tool["versions"], tool["calls"], tool["pin_status"]) == ("read_file", 2, 2, "unpinned")
    schemes = {digest["scheme"] for digest in tool["digests"]}
    assert {"full", "assay.v1", "assay.p60", "hangar.v2"} <= schemes
    table = run("tools", "list", "--input", observed).stdout
    assert "assay.v1 " in table
    assert "not listed" in table


def test_a_pinned_tool_is_shown_as_pinned(observed: Path) -> None:
    with observed.open("ab") as file:
        value = "sha256:" + "a" * 64
        data = {"tool_name": "read_file", "scheme": "assay.v1", "value": value}
        file.write(a_control("pin.set", number=9, second=9, **data) + b"\n")
    tools = {row["tool_name"]: row["pin_status"] for row in rows("tools", "list", "--input", observed)}
    assert tools == {"ghost": "unpinned", "read_file": "mismatch"}
    assert [row["pinned"] for row in rows("servers", "list", "--input", observed)] == [1]


def test_observers_are_listed(observed: Path) -> None:
    [row] = rows("observers", "list", "--input", observed)
    assert (row["observer_id"], row["servers"], row["calls"]) == ("proxy-1", 1, 3)


def test_tools_of_one_server(observed: Path) -> None:
    """Of one that is not known there is nothing: exit code 5."""
    assert len(rows("tools", "list", "--input", observed, "--server-id", SERVER)) == 2
    done = run("tools", "list", "--input", observed, "--server-id", "typo")
    assert done.exit_code == 5
    assert "no tools found" in done.stderr


@pytest.mark.parametrize("what", ["servers", "tools", "observers"])
def test_evidence_alone_tells_who_called_what(observed: Path, tmp_path: Path, what: str) -> None:
    assert run("replay", "--input", observed, "--output", tmp_path / "out").exit_code == 0
    assert rows(what, "list", "--evidence", tmp_path / "out")


def test_all_pages_are_read_up_to_a_limit() -> None:
    """Each from where the one before ended."""
    asked: list[Paging] = []

    def ask(paging: Paging) -> Page[int]:
        asked.append(paging)
        first = int(paging.after or 0)
        last = min(first + min(paging.limit, 2), 5)
        return Page(rows=tuple(range(first, last)), following=None if last == 5 else str(last))

    assert list(every_row(ask)) == [0, 1, 2, 3, 4]
    assert list(every_row(ask, 3)) == [0, 1, 2]
    assert asked[-1].limit == 1


def test_a_short_digest_keeps_its_scheme() -> None:
    """The first scheme that there is; whole where it is asked for."""
    value = "sha256:" + "ab" * 32
    digests = [DigestValue(role="definition", scheme="full", value=value)]
    assert short_digest(digests, "assay.v1", "full") == "full " + "ab" * 6 + "…"
    assert short_digest(digests, "assay.v1", "full", wide=True) == f"full {value}"
    assert short_digest([], "full") == "-"
