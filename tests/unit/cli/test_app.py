"""The command line as a whole: help, version, errors."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer import Context
from typer.main import get_command
from typer.testing import CliRunner

from assay_stream import __version__
from assay_stream.cli import app as cli_app, main
from assay_stream.cli.app import TASKS, app
from tests.support.command import every_command, invoke, run_command_text as run

EXTRAS = ("argon2", "faust", "grpc", "jinja2", "joserfc", "prometheus_client", "pyarrow")
"""Modules that `cli` doesn't install."""


def test_no_command_needs_an_extra_to_start() -> None:
    """The extra ``cli`` is enough for the help of every command, the demo of the README first."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))"
    code = f"{blocked}; from assay_stream.cli.app import app; app(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


def test_a_command_imports_what_it_needs_alone() -> None:
    """A tap stands in front of every server of an agent: rules, detection and a worker's state are no part of it."""
    code = "import sys; from assay_stream.cli.app import app; app(['tap', '--help'], standalone_mode=False)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*sys.modules, sep='\\n', file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.split())
    assert "assay_stream.cli.tap" in loaded
    assert loaded.isdisjoint(f"assay_stream.{room}" for room in ("agents", "detect", "join", "replay", "readmodel"))


def _run_into(output: int, unbuffered: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with its standard output at a descriptor."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "assay_stream", *arguments]
    return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False, env=environment)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["completion bash", "demo --no-broker --output demo"])
def test_standard_output_without_room_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, unbuffered: str
) -> None:
    """And not a folder that the command writes to as well."""
    monkeypatch.chdir(tmp_path)
    with Path("/dev/full").open("wb") as full:
        done = _run_into(full.fileno(), unbuffered, *command.split())
    assert done.returncode == 3
    assert done.stderr.startswith("assay-stream: unwritable_file: cannot write to standard output: ")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--help", "completion bash", "demo --no-broker --output demo"])
def test_a_reader_that_has_read_enough_ends_the_command_quietly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, unbuffered: str
) -> None:
    """With the exit code of SIGPIPE: no answer that a command could give."""
    monkeypatch.chdir(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    done = _run_into(writing, unbuffered, *command.split())
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize(
    ("streams", "code"), [("2>&0", 0), ("2>/dev/full", 0), ("2>&-", 0), (">&0 2>&1", 141), (">&-", 3), (">&- 2>&-", 3)]
)
def test_what_cannot_be_said_changes_no_answer(tmp_path: Path, streams: str, code: int) -> None:
    """Exit code 1 is an answer, and 0 without an answer hides that. Descriptor 0 is a pipe that nobody reads."""
    (tmp_path / "tool.json").write_text('{"name": "a", "inputSchema": {}}')  # no complete list: that is said
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "assay_stream", "drift", str(tmp_path / "tool.json")]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {streams}', "sh", *command], stdin=writing, capture_output=True, check=False
    )
    os.close(writing)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr


def test_standard_output_is_utf_8_in_every_locale(tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text('{"name": "a", "inputSchema": {}}')
    after.write_text('{"name": "漢", "inputSchema": {}}', encoding="utf-8")
    command = [sys.executable, "-m", "assay_stream", "drift", str(before), str(after)]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert "漢" in done.stdout.decode(), done.stderr


def test_an_interrupt_while_a_command_is_loaded_ends_it_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_app, "run", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


def test_a_module_that_a_command_misses_is_not_taken_for_one_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> None:
        raise ModuleNotFoundError("No module named 'other'", name="other")

    monkeypatch.setattr(cli_app, "run", missing)
    with pytest.raises(ModuleNotFoundError):
        main()


def test_the_version_is_printed() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout.strip()) == (0, __version__)


def test_every_command_explains_itself() -> None:
    """--help exits 0 and says how the command is used, in no words of Python."""
    names = [name for name, _ in every_command()]
    assert len(names) > 90
    for name in ("", *{name.rpartition(" ")[0] for name in names}, *names):
        done = run(*name.split(), "--help")
        assert done.returncode == 0, name
        assert done.stdout.startswith(f"Usage: assay-stream {name}"), name
        assert "{" not in done.stdout.partition("\n\n")[0], name
        assert not re.search(r"<(str|Path|list)\b", done.stdout), name


@pytest.mark.parametrize(("given", "meant"), [([], None), (["--enforce"], "calls"), (["--enforce", "hide"], "hide")])
def test_a_tap_that_is_told_to_enforce_refuses_calls(given: list[str], meant: str | None) -> None:
    commands: Any = get_command(app)
    command = commands.get_command(Context(commands), "tap")
    assert command.make_context("tap", ["--server-id", "s", *given, "--", "server"]).params["enforce"] == meant


# --- how the help lists commands ------------------------------------------------------------------------------


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


def test_a_misspelt_setting_is_named_with_the_one_that_is_meant() -> None:
    said = "ignored ASSAY_STREAM_SASL_PASWORD: there is no such setting; the closest is ASSAY_STREAM_SASL_PASSWORD"
    done = run(
        "completion", "zsh", ASSAY_STREAM_SASL_PASWORD="planted", ASSAY_STREAM_AUTHOR="a", assay_stream_store="s"
    )
    assert done.stderr == f"assay-stream: {said}\n"


# --- completion by shells -------------------------------------------------------------------------------------


COMMAND = Path(sys.executable).with_name("assay-stream")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_the_command(shell: str) -> None:
    """By its installed name, however it was started."""
    done = invoke("completion", shell)
    assert done.exit_code == 0, done.output
    assert f"complete_{shell}" in done.stdout
    assert "_ASSAY_STREAM_COMPLETE" in done.stdout
    assert "assay-stream" in done.stdout


def test_an_unknown_shell_is_refused_with_the_known_ones() -> None:
    done = invoke("completion", "csh")
    assert done.exit_code == 2
    assert "fish" in done.output


BASH = f"""
source <("{COMMAND}" completion bash)
completed() {{
    COMP_WORDS=("$@" "") COMP_CWORD=$#
    "$(complete -p assay-stream | sed 's/.*-F \\([^ ]*\\).*/\\1/')" assay-stream
    echo "${{COMPREPLY[@]}}"
}}
completed assay-stream
completed assay-stream policy
completed assay-stream policy set --enforcement
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_choices() -> None:
    """A real one, by the script that is printed."""
    environment = {**os.environ, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    commands, subcommands, choices = (set(line.split()) for line in done.stdout.splitlines())
    assert {"alerts", "policy", "pins", "completion"} <= commands
    assert {"plan", "set", "remove", "list"} <= subcommands
    assert {"audit", "warn", "block"} <= choices


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("evidence", "list", "--input"), "unreadable_file: cannot use "),
        (("store", "load", "--store", "s"), "unreadable_file: cannot use "),
        (("evidence", "list", "--store"), "store_failing: the store "),
        (("store", "status", "--store"), "store_failing: the store "),
    ],
)
def test_a_path_that_cannot_be_looked_up_is_named(command: tuple[str, ...], said: str) -> None:
    """As in a folder that somebody else owns, or one with a longer name than there can be."""
    done = run(*command, "x" * 300)
    assert (done.returncode, "Traceback" in done.stderr) == (3 if "store_failing" in said else 2, False)
    assert said in done.stderr
    assert "File name too long" in done.stderr
