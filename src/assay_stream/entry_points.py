"""Finds plug-ins among the entry points of installed distributions, and imports one when its name is used.

Listing names imports nothing. Two plug-ins of one name are refused: none takes another's place unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from assay_stream.errors import AssayStreamError, ConfigurationError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Group(Generic[T]):
    """The plug-ins of one kind: their group of entry points, what one is called, and the members it must have."""

    name: str
    noun: str
    members: tuple[str, ...]

    def names(self) -> list[str]:
        """Return the names of all installed ones; raises ``ConfigurationError`` ``bad_plugin`` if there is none."""
        if names := sorted({point.name for point in entry_points(group=self.name)}):
            return names
        raise ConfigurationError("bad_plugin", f"not a single {self.noun} is installed: install assay-stream again")

    def load(self, name: str) -> T:
        """Import a plug-in.

        Raises:
            ConfigurationError: ``bad_plugin``; ``extra_missing``.
        """
        found: T = _load(self, name)
        return found

    def described(self, name: str) -> str:
        """Return a plug-in's name with the distributions that have it."""
        owners = (point.dist for point in entry_points(group=self.name, name=name))
        named = sorted(f"{owner.name} {owner.version}" for owner in owners if owner is not None)
        return f"the {self.noun} {name} of {' and of '.join(named)}"


@cache
def _load(group: Group[Any], name: str) -> Any:
    found, what = tuple(entry_points(group=group.name, name=name)), group.described(name)
    if not found:
        raise ConfigurationError("bad_plugin", f"there is no such {group.noun}, only {', '.join(group.names())}")
    if len(found) > 1:
        raise ConfigurationError("bad_plugin", f"{what} have one name: uninstall all but one")
    try:
        plugin = found[0].load()
    except AssayStreamError:
        raise
    except Exception as error:
        raise ConfigurationError("bad_plugin", f"{what} fails on import: {type(error).__name__}: {error}") from error
    if missing := [each for each in group.members if not hasattr(plugin, each)]:
        raise ConfigurationError(
            "bad_plugin", f"{what} lacks {', '.join(missing)}: docs/plugins.md says what it must have"
        )
    return plugin
