"""Files that hold one secret each, such as a password."""

from __future__ import annotations

from pathlib import Path

from assay_stream.errors import ConfigurationError

SECRET_FILE_BYTES_MAX = 64 * 1_024
"""A longer file is not a password file: the path is probably wrong."""


def secret_of_file(path: Path, *, variable: str) -> str:
    """Return the secret in a file, without its trailing line feed.

    Args:
        variable: the variable that named the file, for the error.

    Raises:
        ConfigurationError: ``bad_secret_file``.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(SECRET_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(
            "bad_secret_file", f"{variable} names a file that cannot be read ({error.strerror}): {path}"
        ) from None
    try:
        text = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        text = ""
    if not text or len(raw) > SECRET_FILE_BYTES_MAX or "\n" in text:
        raise ConfigurationError(
            "bad_secret_file", f"{variable} names a file that does not hold one line of UTF-8 text: {path}"
        )
    return text
