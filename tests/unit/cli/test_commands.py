"""How the help lists commands."""

import pytest
from typer.testing import CliRunner

from assay_stream.cli import app as cli_app
from assay_stream.cli.app import TASKS, app
from tests.support.command import invoke


def help_of(*command: str) -> str:
    done = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).invoke(app, [*command, "--help"])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_every_command_belongs_to_one_task() -> None:
    """The help begins with where to begin, and leaves nothing for the end."""
    text = help_of()
    assert "demo --no-broker" in text.split("Options:")[0]
    assert [line.rstrip(":") for line in text.splitlines() if line.endswith(":")] == ["Options", *TASKS]
    assert "Other:" not in text
    named = [name for names in TASKS.values() for name in names]
    assert len(named) == len(set(named))
    assert all(f"\n  {name} " in text for name in named)


@pytest.mark.parametrize("command", [(), ("alerts",), ("evidence",), ("seal",)])
def test_descriptions_are_wrapped_and_not_cut(command: tuple[str, ...]) -> None:
    """A sentence that ends in dots says nothing."""
    text = help_of(*command)
    assert "..." not in text.split("Options:")[1]
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_most_used_commands_come_first() -> None:
    """Of alerts: what a person looks with, then what they decide."""
    text = help_of("alerts")
    assert text.index("  list ") < text.index("  show ") < text.index("  suppress ") < text.index("  forward ")


def test_a_command_whose_module_fails_is_not_called_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where what it raises is a ``KeyError``, as looking for a name does."""
    cli_app._command.cache_clear()
    monkeypatch.setitem(cli_app._PLACES, "demo", "demo:no_such_name")
    with pytest.raises(AttributeError, match="no_such_name"):
        invoke("demo", catch_exceptions=False)
    monkeypatch.setattr(cli_app, "import_module", {}.__getitem__)
    with pytest.raises(KeyError):
        invoke("demo", catch_exceptions=False)


def test_a_former_name_is_not_listed() -> None:
    assert "conformance" not in help_of()
    assert "Usage:" in help_of("conformance")
