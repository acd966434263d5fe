"""The command line, run within the test's own process: a process of its own takes longer to start than to work."""

import io
import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import typer
from typer.testing import CliRunner, Result

from assay_stream.cli import main
from assay_stream.cli.app import app
from assay_stream.errors import AssayStreamError


def invoke(*arguments: object, **options: Any) -> Result:
    """The command in the surroundings of the test: its errors come as exceptions, before ``main`` makes words of them.

    Args:
        arguments: of the command, as text.
        options: of typer's runner.
    """
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def every_command(command: Any = None, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each command with its name; of groups, those in them."""
    command = typer.main.get_command(app) if command is None else command
    inner = list(getattr(command, "commands", ()))
    for each in inner:
        yield from every_command(command.get_command(None, each), f"{name} {each}".strip())
    if not inner:
        yield name, command


def rows_of(done: Result) -> list[dict[str, Any]]:
    """The JSON objects that the command printed, one a line."""
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def error_code(done: Result) -> str:
    """The code of the error that the command ended with; fails if there is none."""
    assert isinstance(done.exception, AssayStreamError), done.output
    return done.exception.code


def run_command(*arguments: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    """What ``assay-stream`` with these arguments prints and exits with; no setting of the surroundings reaches it.

    Args:
        arguments: as a shell would hand them over.
        stdin: bytes of standard input.
        env: variables beside those of the surroundings.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_STREAM_")}
    out, err = io.BytesIO(), io.BytesIO()
    streams = {
        "sys.stdin": io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"),
        "sys.stdout": io.TextIOWrapper(out, encoding="utf-8", write_through=True),
        "sys.stderr": io.TextIOWrapper(err, encoding="utf-8", errors="backslashreplace", write_through=True),
        "sys.argv": ["assay-stream", *arguments],
        "__main__.__package__": None,  # under ``python -m pytest`` click would call the program that
    }
    code: int | str | None = 0
    with patch.dict(os.environ, clean | env, clear=True):
        patches = [patch(name, value) for name, value in streams.items()]
        for each in patches:
            each.start()
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code
        finally:
            for each in reversed(patches):
                each.stop()
    assert code is None or isinstance(code, int), code
    return subprocess.CompletedProcess(["assay-stream", *arguments], code or 0, out.getvalue(), err.getvalue())


def run_command_text(*arguments: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[str]:
    """As ``run_command``, with what is printed as text.

    Args:
        arguments: as a shell would hand them over.
        stdin: bytes of standard input.
        env: variables beside those of the surroundings.
    """
    done = run_command(*arguments, stdin=stdin, **env)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
