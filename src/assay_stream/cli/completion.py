"""``assay-stream completion``: scripts by which shells complete commands and options."""

import os
from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters, show_callback

COMMAND = "assay-stream"
_ASKED = "_ASSAY_STREAM_COMPLETE"


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context, shell: Annotated[Shell, typer.Argument(help="The shell that reads it.")]
) -> None:
    """Print the shell script that completes commands, options and choices. Load it in the shell's start-up file.

    bash, in ~/.bashrc: eval "$(assay-stream completion bash)"

    zsh, in ~/.zshrc after compinit: eval "$(assay-stream completion zsh)"

    fish: assay-stream completion fish > ~/.config/fish/completions/assay-stream.fish
    """
    prepare(asked=True)
    # However this was started, the script is for the installed command.
    root = typer.Context(context.find_root().command, info_name=COMMAND)
    show_callback(root, root.command.params[0], shell.value)


def prepare(*, asked: bool | None = None) -> None:
    """Register the shells with typer if one is requesting completions, or as ``asked`` states."""
    if asked if asked is not None else _ASKED in os.environ:
        get_completion_inspect_parameters()
