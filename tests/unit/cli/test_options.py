"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from assay_stream.cli.options import grouped, operator_time_us
from assay_stream.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Group:
    """Two options, one of which is required."""

    needed: Annotated[str, typer.Option(help="Is needed.")]
    times: Annotated[int, typer.Option(min=1)] = 1


app = typer.Typer()


@app.command()
@grouped
def shout(word: Annotated[str, typer.Argument()], group: Group, loud: bool = False) -> None:
    """Say what was given."""
    typer.echo(f"{word} {group} {loud}")


def test_a_group_is_options_of_the_command() -> None:
    """With their defaults, types and bounds, beside its own."""
    done = CliRunner().invoke(app, ["a", "--needed", "b", "--times", "3", "--loud"])
    assert done.output == "a Group(needed='b', times=3) True\n"
    assert CliRunner().invoke(app, ["a", "--needed", "b"]).output == "a Group(needed='b', times=1) False\n"
    assert CliRunner().invoke(app, ["a", "--needed", "b", "--times", "0"]).exit_code == 2


def test_a_field_without_a_default_is_required() -> None:
    """As a parameter of a command is."""
    done = CliRunner().invoke(app, ["a"])
    assert done.exit_code == 2
    assert "--needed" in done.output


def test_help_names_every_option() -> None:
    """With its text."""
    assert "Is needed." in CliRunner().invoke(app, ["--help"]).output


@pytest.mark.parametrize("text", ["yesterday", "1", "2026-03-01T10:00:00", "2026-02-30T10:00:00Z"])
def test_a_time_that_cannot_be_meant_is_refused(text: str) -> None:
    """It needs an offset, and must exist."""
    with pytest.raises(InputError) as caught:
        operator_time_us(text)
    assert caught.value.code == "bad_time"
