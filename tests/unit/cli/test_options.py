"""Options that several commands share."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from assay_stream.cli.options import time_option
from assay_stream.cli.shared import argument, flag, grouped, option
from assay_stream.cli.sources import Meter
from assay_stream.model.cloudevents import ACCEPTED
from assay_stream.model.record import Origin, Record, Role
from tests.support.command import error_code, invoke, run_command


@dataclass(frozen=True, kw_only=True)
class Group:
    needed: Annotated[str, option("Is needed.")]
    times: int = option("How often.", default=1, min=1)


RECORD = Record(Role.CALLS, Origin("calls", 0, 0), None, b"")
app = typer.Typer()


@app.command()
@grouped
def shout(word: Annotated[str, argument("Any.")], group: Group, loud: bool = flag("Loudly.")) -> None:
    """Say what was given."""
    typer.echo(f"{word} {group} {loud}")


def test_a_group_is_options_of_the_command() -> None:
    """With their defaults, types and bounds, beside its own."""
    done = CliRunner().invoke(app, ["a", "--needed", "b", "--times", "3", "--loud"])
    assert done.output == "a Group(needed='b', times=3) True\n"
    assert CliRunner().invoke(app, ["a", "--needed", "b"]).output == "a Group(needed='b', times=1) False\n"
    assert CliRunner().invoke(app, ["a", "--needed", "b", "--times", "0"]).exit_code == 2


def test_a_field_without_a_default_is_required() -> None:
    done = CliRunner().invoke(app, ["a"])
    assert done.exit_code == 2
    assert "--needed" in done.output


def test_help_names_every_option() -> None:
    output = CliRunner().invoke(app, ["--help"]).output
    assert all(text in output for text in ("--needed", "Is needed.", "--times", "How often.", "--loud", "Loudly."))
    assert "--no-loud" not in output


kinds = typer.Typer(rich_markup_mode=None)


@kinds.command()
@grouped
def take(
    names: Annotated[list[str] | None, option("Names.")] = None,
    path: Annotated[Path | None, option("A path.")] = None,
    often: Annotated[int, option("How often.")] = 1,
) -> None:
    typer.echo((names, path, often))


def test_help_names_the_kind_of_a_value_not_its_python_type() -> None:
    output = CliRunner().invoke(kinds, ["--help"]).output
    assert "--names TEXT" in output
    assert "--path PATH" in output
    assert "--often NUMBER" in output


clock = typer.Typer()


@clock.command()
@grouped
def tell(since: int = time_option("From then on."), until: int = time_option("Until then.", ahead=True)) -> None:
    typer.echo(since if until is None else until - since)


def test_an_option_that_takes_a_time_says_what_it_reads() -> None:
    """In its help, and where it refuses a text."""
    assert CliRunner().invoke(clock, ["--since", "1970-01-02"]).output == "86400000000\n"
    assert "yesterday" in CliRunner().invoke(clock, ["--help"]).output
    refused = CliRunner().invoke(clock, ["--since", "soon"])
    assert error_code(refused) == "bad_time"
    assert ACCEPTED in str(refused.exception)


def test_a_span_is_counted_from_now() -> None:
    """Backwards, for all but what lies ahead."""
    span_us = int(CliRunner().invoke(clock, ["--since", "1h", "--until", "1h"]).output)
    assert 7_199 <= span_us / 1_000_000 <= 7_260


@pytest.mark.parametrize(
    ("command", "first", "last"),
    [
        ("timeline --server-id s", "--since", "--until"),
        ("coverage --from-kafka", "--since", "--until"),
        ("evidence list", "--since", "--until"),
        ("evidence tail", "--since", "--until"),
        ("export timesketch --output out.csv", "--since", "--until"),
        ("verify --from-kafka", "--since", "--until"),
        ("replay --from-kafka --output out", "--from-time", "--to-time"),
        ("archive --output out", "--from-time", "--to-time"),
    ],
)
def test_a_span_that_ends_before_it_begins_is_refused_at_once(command: str, first: str, last: str) -> None:
    """Nothing found in it would read as if nothing had happened. No broker is asked."""
    done = run_command(*command.split(), first, "now", last, "yesterday", ASSAY_STREAM_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert done.returncode == 2, done.stderr
    assert done.stderr.decode() == f"assay-stream: bad_time: {first} is after {last}: swap them\n"


# --- progress -------------------------------------------------------------------------------------------------


def test_speed_and_time_left_are_of_this_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run at 100 calls a second with 9,900 to go: 99 seconds; what was done before does not count."""
    monkeypatch.setenv("COLUMNS", "100")
    now_s = 0.0
    meter = Meter(True, clock_s=lambda: now_s)
    for done in (100_000, 100_100, 100_200, 100_300):
        now_s += 1.0
        meter.replaying([("calls:0", done, 110_200)])
    last = capsys.readouterr().err.splitlines()[-1].split()
    assert last[0] == "calls:0"
    assert last[-4:] == ["100300/110200", "91%", "100/s", "0:01:39"]


def test_each_partition_and_all_of_them_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    meter = Meter(True, clock_s=lambda: now_s)
    now_s = 2.0
    meter.replaying([("calls:0", 1, 4), ("calls:1", 1, 4)])
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()] == ["calls", "calls:0", "calls:1"]


def test_it_reports_once_a_second(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay_stream.cli.sources.LOOK_EVERY", 1)
    now_s, taken = 0.0, list[Record]()
    take = Meter(True, clock_s=lambda: now_s).counting(taken.append)
    for _ in range(20):
        now_s += 0.125
        take(RECORD)
    assert len(taken) == 20
    assert capsys.readouterr().err.count("records read") == 2


def test_nothing_is_said_where_it_is_not_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    meter = Meter(None, clock_s=lambda: now_s)
    now_s = 2.0
    meter.replaying([("calls:0", 1, 4)])
    meter.end()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("address", "warnings"), [("127.0.0.1", 0), ("[::1]", 0), ("192.0.2.1", 1)])
def test_a_tap_warns_if_tokens_would_cross_a_network_in_the_clear(
    address: str, warnings: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def serve(*_: object, ready: Callable[[int], None], **__: object) -> None:
        ready(8080)

    monkeypatch.setattr("assay_stream.observe.http.tap.run_http_tap", serve)
    upstream = ("--server-id", "docs", "--upstream", "https://docs.example/mcp")
    done = invoke("tap", "--listen", f"{address}:8080", *upstream, "--output", tmp_path / "o")
    assert done.exit_code == 0
    assert done.stderr.count("--tls-cert") == warnings
