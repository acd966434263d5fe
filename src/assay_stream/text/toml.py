"""Decoding of the files that operators write for us: TOML."""

import re
import tomllib
from typing import Any

from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS

_PLACE = re.compile(r"\(at (?:line ([0-9]+), column [0-9]+|end of document)\)")


def decode_toml(raw: bytes) -> dict[str, Any]:
    """Decode a configuration file.

    Raises:
        InputError: ``too_large``, ``not_utf8``, ``not_toml``, quoting nothing of it.
    """
    if len(raw) > DEFAULT_LIMITS.record_bytes_max:
        raise InputError("too_large", f"{len(raw)} bytes, {DEFAULT_LIMITS.record_bytes_max} are allowed")
    try:
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise InputError("not_utf8", f"byte {error.start} is not UTF-8: write UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        found = _PLACE.search(str(error))
        where = f"line {found[1]}: " if found and found[1] else ""
        raise InputError(
            "not_toml", f"{where}not TOML. YAML and JSON are not read: docs/operations.md#configuration-files has both"
        ) from None
