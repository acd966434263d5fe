"""What a proxy uses to publish observations: publisher, tap, sinks, verdict client, and readers of recorded traffic.

This module is the public API. Names are loaded on first use, so that a proxy that only publishes loads neither the
digest schemes nor the record models. The readers of recorded traffic (``from_*``) need the extra ``cli``.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from assay_stream.errors import needing_extra

if TYPE_CHECKING:
    from assay_stream.observe.delivery import PublisherLimits
    from assay_stream.observe.feeds.feed import Feed
    from assay_stream.observe.mcp_wire import WireObserver
    from assay_stream.observe.observation import Observation, Vantage, call_event, list_changed_event, snapshot_event
    from assay_stream.observe.prefixes import Prefixes
    from assay_stream.observe.publisher import ObservationPublisher
    from assay_stream.observe.recorded import from_assay_log, from_mcp_wire, from_observations
    from assay_stream.observe.sinks import FileSink, MemorySink, Sink, SinkStats
    from assay_stream.observe.spool import Spool
    from assay_stream.observe.tap import run_tap
    from assay_stream.observe.verdicts import VerdictClient
    from assay_stream.observe.wire import WireStats

_NAMES = {
    "delivery": ("PublisherLimits",),
    "feeds.feed": ("Feed",),
    "mcp_wire": ("WireObserver",),
    "observation": ("Observation", "Vantage", "call_event", "list_changed_event", "snapshot_event"),
    "prefixes": ("Prefixes",),
    "publisher": ("ObservationPublisher",),
    "recorded": ("from_assay_log", "from_mcp_wire", "from_observations"),
    "sinks": ("FileSink", "MemorySink", "Sink", "SinkStats"),
    "spool": ("Spool",),
    "tap": ("run_tap",),
    "verdicts": ("VerdictClient",),
    "wire": ("WireStats",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Feed",
    "FileSink",
    "MemorySink",
    "Observation",
    "ObservationPublisher",
    "Prefixes",
    "PublisherLimits",
    "Sink",
    "SinkStats",
    "Spool",
    "Vantage",
    "VerdictClient",
    "WireObserver",
    "WireStats",
    "call_event",
    "from_assay_log",
    "from_mcp_wire",
    "from_observations",
    "list_changed_event",
    "run_tap",
    "snapshot_event",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needing_extra("cli") if _MODULES[name] == "recorded" else nullcontext():
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
