"""Where a command writes: results that are there already are replaced only with ``--force``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from assay_stream.errors import ConfigurationError, InputError

Force = Annotated[
    bool,
    typer.Option("--force", help="Replace what is there, once the new results are complete."),
]


def refuse_existing_file(path: Path, *, force: bool) -> None:
    """Make sure that no file with content is replaced unasked.

    Args:
        path: where a command is about to write; a device or a pipe is not replaced by that, and passes.
        force: whether replacing was asked for.

    Raises:
        ConfigurationError: ``output_exists``.
    """
    if not force and path.is_file() and path.stat().st_size:
        raise ConfigurationError("output_exists", f"{path} exists: choose another name, or give --force to replace it")


def refuse_filled_folder(folder: Path, *, force: bool, leftovers: Collection[str] = (), hint: str = "") -> None:
    """Make sure that no results are written among what a folder holds already.

    Args:
        folder: where a command is about to write.
        force: whether replacing was asked for.
        leftovers: names of unfinished files, which are nobody's results.
        hint: what else the user can do, a half-sentence.

    Raises:
        ConfigurationError: ``output_exists``.
        InputError: ``unwritable_folder`` where it cannot be listed.
    """
    if force or not folder.is_dir():
        return
    try:
        found = sorted(entry.name for entry in folder.iterdir() if entry.name not in leftovers)
    except OSError as error:
        raise InputError("unwritable_folder", f"cannot write to {folder}: {error.strerror}") from None
    if found:
        raise ConfigurationError(
            "output_exists",
            f"{folder} is not empty (it has {found[0]}): choose another folder, {hint}or give --force to replace "
            "the results in it",
        )
