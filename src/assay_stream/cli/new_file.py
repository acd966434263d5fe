"""Files that must not exist yet: keys are never overwritten."""

from __future__ import annotations

import os
from pathlib import Path

from assay_stream.errors import ConfigurationError


def write_key_files(private: tuple[Path, bytes], public: tuple[Path, bytes]) -> None:
    """Write both files of a key pair, or none.

    Args:
        private: path and content of the private key, which its owner alone can read.
        public: path and content of the public key.

    Raises:
        ConfigurationError: ``file_exists`` or ``unwritable_file``.
    """
    _write_new(*private, 0o600)
    try:
        _write_new(*public, 0o644)
    except ConfigurationError:
        private[0].unlink(missing_ok=True)
        raise


def _write_new(path: Path, content: bytes, file_mode: int) -> None:
    """Write a file that does not exist, with its final permissions from its first byte on."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file_mode)
    except FileExistsError:
        raise ConfigurationError("file_exists", f"{path} exists: keys are never overwritten") from None
    except OSError as error:
        raise ConfigurationError("unwritable_file", f"cannot write {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
