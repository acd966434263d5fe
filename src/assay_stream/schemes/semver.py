"""Semantic Versioning 2.0.0: reading versions and their order (clauses 2, 9, 10 and 11)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS

_NUMBER = r"(?:0|[1-9][0-9]*+)"
_LABEL = r"[0-9A-Za-z-]++"
_PRE_RELEASE = rf"(?:{_NUMBER}(?![0-9A-Za-z-])|[0-9]*+[A-Za-z-][0-9A-Za-z-]*+)"
_VERSION = re.compile(
    rf"(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER})"
    rf"(?:-(?P<labels>{_PRE_RELEASE}(?:\.{_PRE_RELEASE})*+))?"
    rf"(?:\+(?P<build>{_LABEL}(?:\.{_LABEL})*+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version.

    Args:
        major: incompatible changes.
        minor: added functionality.
        patch: fixes.
        pre_release: the dot-separated labels after the hyphen; empty for a release.
        build: what stands after the plus sign; it has no part in the order.
    """

    major: int
    minor: int
    patch: int
    pre_release: tuple[str, ...] = ()
    build: str = ""

    def is_plain(self) -> bool:
        """Tell whether this is MAJOR.MINOR.PATCH and nothing else."""
        return not self.pre_release and not self.build

    def precedes(self, other: Version) -> bool:
        """Tell whether this version has lower precedence than another (clause 11)."""
        return self._rank() < other._rank()

    def _rank(self) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]:
        # A release stands above its pre-releases, numbers stand below words, and more labels above fewer.
        labels = tuple((False, int(label), "") if label.isdigit() else (True, 0, label) for label in self.pre_release)
        return (self.major, self.minor, self.patch), not self.pre_release, labels


def parse_version(text: str) -> Version:
    """Return the version that a text names.

    Args:
        text: for example ``1.4.0-rc.1+exp``; no white space, no leading ``v``.

    Raises:
        InputError: ``too_long`` or ``bad_format``.
    """
    longest = DEFAULT_LIMITS.version_chars_max
    if len(text) > longest:
        raise InputError("too_long", f"a version has {longest} characters at most")
    match = _VERSION.fullmatch(text)
    if match is None:
        raise InputError("bad_format", "a version is MAJOR.MINOR.PATCH (Semantic Versioning 2.0.0)")
    return Version(
        major=int(match["major"]),
        minor=int(match["minor"]),
        patch=int(match["patch"]),
        pre_release=tuple(match["labels"].split(".")) if match["labels"] else (),
        build=match["build"] or "",
    )
