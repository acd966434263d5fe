"""The one error base of assay-stream, branched by who is to blame.

Every error has a stable ``code`` (part of the public contract: it stands in the headers of rejected records
and in metrics), a message that names what, where and how to fix it, and the JSON path of the offending
value where there is one. Errors never carry payloads or secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class AssayStreamError(Exception):
    """An error with a stable code.

    Args:
        code: stable snake_case identifier, for example ``duplicate_key``.
        message: one sentence for a person: what is wrong and how to fix it. Never quotes input values.
        path: JSON path of the offending value (``$.data.tools[3].name``), or ``""`` if there is none.
    """

    def __init__(self, code: str, message: str, *, path: str = "") -> None:
        super().__init__(code, message, path)
        self.code = code
        self.message = message
        self.path = path

    def __str__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return f"{self.code}{where}: {self.message}"


class InputError(AssayStreamError):
    """A record or file that someone gave us is wrong: it is refused, kept and reported."""


class ConfigurationError(AssayStreamError):
    """The operator's settings, topics or command line are wrong: nothing starts until they are corrected."""


class OperatingError(AssayStreamError):
    """Something outside failed (a broker, a disk): retried within a limit, then the process stops."""


class IntegrityError(AssayStreamError):
    """Our own logs contradict each other: the process stops rather than guess."""


@contextmanager
def needing_extra(extra: str) -> Iterator[None]:
    """Import what only an optional extra installs, within the block.

    Raises:
        ConfigurationError: ``extra_missing``.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "extra_missing",
            f"the Python module {error.name} is missing: run pip install 'assay-stream[{extra}]', "
            f"or in a checkout pip install '.[{extra}]'",
        ) from None


@contextmanager
def named_in_errors(name: object) -> Iterator[None]:
    """Say in an ``InputError`` of the block what is wrong: a file (``-`` for standard input), a line, a record."""
    try:
        yield
    except InputError as error:
        where = "standard input" if str(name) == "-" else name
        raise InputError(error.code, f"{where}: {error.message}", path=error.path) from None
