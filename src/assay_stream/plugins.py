"""Plug-ins: alert formats, alert receivers, readers of other products' logs, and gateway feeds.

Each is an entry point of its group, the built-in ones too. A plug-in is imported only when its name is used; listing
names imports nothing. Two plug-ins with the same name are refused, so that none silently replaces another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from assay_stream.errors import AssayStreamError, ConfigurationError, InputError

if TYPE_CHECKING:
    from assay_stream.alerts.view import AlertView
    from assay_stream.forward.receivers import AttemptResult, Entry, Setting
    from assay_stream.observe.feeds.feed import Feed
    from assay_stream.observe.logs.calls import Whose
    from assay_stream.observe.observation import Observation


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

    @contextmanager
    def naming(self, name: str, place: str = "") -> Iterator[None]:
        """Raise ``InputError`` ``plugin_failed`` for an exception, by its class: its text may quote input."""
        try:
            yield
        except (AssayStreamError, MemoryError):
            raise
        except Exception as error:
            raise InputError("plugin_failed", f"{self.described(name)} fails{place}: {type(error).__name__}") from error


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """``write`` returns one alert as one line; ``write_file``, where given, many alerts as one document."""

    media_type: str
    write: Callable[[dict[str, Any]], str]
    write_file: Callable[[list[dict[str, Any]]], str] | None = None


class Receiver(Protocol):
    """Takes one alert at a time.

    It is made from its entry in the file of receivers, and raises ``ConfigurationError`` then. Later failures are
    results, not exceptions.
    """

    settings: ClassVar[Mapping[str, Setting]]
    is_for_people: ClassVar[bool]
    """Whether alerts from before it was set up are kept from it."""

    def __init__(self, entry: Entry) -> None: ...

    @property
    def name(self) -> str:
        """Its name in logs and dead letters; holds no secret."""

    def write(self, alert: dict[str, Any]) -> str:
        """Return an alert as it is sent; always the same for the same alert."""

    async def send(self, view: AlertView, body: str) -> AttemptResult: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReader:
    """Reads the entries of a log: lines of JSON, unless ``split`` and ``decode`` say otherwise.

    Args:
        read: gets an entry, an identity that no other entry has, whose log it is, and counts of what the log omits.
        read_unsound: yields what must be known of an entry that could not be decoded.
        in_topics: whether such entries are also found in Kafka topics.
    """

    read: Callable[[Mapping[str, Any], str, Whose, Counter[str]], Iterator[Observation | InputError]]
    split: Callable[[Iterable[bytes]], Iterator[bytes]] | None = None
    decode: Callable[[bytes], Any] | None = None
    read_unsound: Callable[[bytes, Whose], Iterator[Observation]] | None = None
    in_topics: bool = False


class GatewayFeed(Protocol):
    """What a gateway calls: middleware, a callback, a plug-in or a service. Its interface says how it is made."""

    feed: Feed


FORMATS: Group[Format] = Group("assay_stream.formats", "format", ("media_type", "write", "write_file"))
RECEIVERS: Group[type[Receiver]] = Group(
    "assay_stream.receivers", "receiver", ("settings", "is_for_people", "write", "send", "close")
)
LOGS: Group[LogReader] = Group(
    "assay_stream.logs", "log reader", ("read", "split", "decode", "read_unsound", "in_topics")
)
FEEDS: Group[type[GatewayFeed]] = Group("assay_stream.feeds", "feed", ())
