"""Configuration files of operators."""

from pathlib import Path
from typing import Any

from assay_stream.errors import ConfigurationError, InputError
from assay_stream.text.toml import decode_toml


def read_toml(path: Path, code: str) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigurationError: of this code, naming the file.
    """
    try:
        return decode_toml(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(code, f"cannot read {path}: {error.strerror}") from None
    except InputError as error:
        raise ConfigurationError(code, f"{path}: {error.message}") from None
