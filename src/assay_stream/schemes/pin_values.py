"""One pin, the schemes that can be pinned, and what their values look like."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from assay_stream.errors import InputError

_PREFIXED = re.compile(r"sha256:[0-9a-f]{64}")
_BARE = re.compile(r"[0-9a-f]{64}")
SCHEME_FORMS: Mapping[str, re.Pattern[str]] = {
    "assay.v1": _PREFIXED,
    "assay.schema_hash": _BARE,
    "assay.meta_hash": _BARE,
    "assay.p60": _PREFIXED,
    "schemapin.v1": _BARE,
    "hangar.v1_2": _BARE,
    "hangar.v2": _BARE,
    "mcptrust.description_hash": _PREFIXED,
    "mcptrust.input_schema_hash": re.compile(rf"({_PREFIXED.pattern})?"),
    "mcptrust.risk_level": re.compile("LOW|MEDIUM|HIGH"),
}
"""Every scheme that can be pinned, and what its values look like. ``fingerprint.SCHEMES`` computes them."""
SCHEME_NAMES = tuple(SCHEME_FORMS)
_HEX_DIGITS = 64


class PinEntry(NamedTuple):
    """One pin: the value that a tool's definition must have under one scheme.

    Args:
        server_id: ``None`` if the file names no server.
        scheme: one of ``SCHEME_NAMES``.
        upstream: what MCP Hangar binds the value to (``tool_projection.upstream``), ``None`` if unbound.
    """

    server_id: str | None
    tool_name: str
    scheme: str
    value: str
    upstream: str | None = None


def check_value(scheme: str, value: str) -> str:
    """Return ``value`` if it is valid under the scheme.

    Args:
        value: 64 hexadecimal digits, with or without ``sha256:``, or a risk level; empty for no input schema.

    Raises:
        InputError: ``unknown_value`` for an unknown scheme, ``bad_pin_value``.
    """
    form = SCHEME_FORMS.get(scheme)
    if form is None:
        raise InputError("unknown_value", f"the scheme must be one of {', '.join(SCHEME_NAMES)}", path="$.scheme")
    if not form.fullmatch(value):
        wanted = {_PREFIXED: "sha256: and 64 lowercase hexadecimal digits", _BARE: "64 lowercase hexadecimal digits"}
        described = wanted.get(form, "LOW, MEDIUM or HIGH")
        if scheme == "mcptrust.input_schema_hash":
            described = f"{wanted[_PREFIXED]}, or empty for a tool without input schema"
        raise InputError("bad_pin_value", f"a value of {scheme} is {described}", path="$.value")
    return value


def printed_value(scheme: str, value: str) -> str:
    """Return a value in the notation of its scheme; digests may be given with or without ``sha256:``.

    Raises:
        InputError: as ``check_value``.
    """
    digits = value.removeprefix("sha256:")
    if len(digits) == _HEX_DIGITS:
        value = digits if SCHEME_FORMS.get(scheme) is _BARE else f"sha256:{digits}"
    return check_value(scheme, value)
