"""Semantic Versioning 2.0.0, read strictly and with bounded numbers; the rules are those of the ``semver`` library."""

from semver import Version

from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS


def parse_version(text: str) -> Version:
    """Parse a version.

    Raises:
        InputError: ``too_long`` or ``bad_format``.
    """
    longest = DEFAULT_LIMITS.version_chars_max
    if len(text) > longest:
        raise InputError("too_long", f"a version has {longest} characters at most")
    try:
        # The library takes digits of any script.
        return Version.parse(text if text.isascii() else "")
    except ValueError:
        raise InputError("bad_format", "a version is MAJOR.MINOR.PATCH (Semantic Versioning 2.0.0)") from None


def is_plain(version: Version) -> bool:
    """Return True if a version is just MAJOR.MINOR.PATCH."""
    return not version.prerelease and not version.build
