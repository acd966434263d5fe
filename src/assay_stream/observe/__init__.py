"""Building blocks for proxies that publish observations: publisher, tap, sinks, verdict client, and readers of recorded
traffic.

This module is the public API. Names are loaded on first use, so that a proxy that only publishes loads neither the
digest schemes nor the record models. The readers of recorded traffic (``from_*``) need the extra ``cli``.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from assay_stream.errors import needing_extra

if TYPE_CHECKING:
    from assay_stream.canonical.digest import DigestKey as DigestKey
    from assay_stream.observe.feeds.feed import Feed as Feed
    from assay_stream.observe.observation import (
        Observation as Observation,
        Prefixes as Prefixes,
        Vantage as Vantage,
        call_event as call_event,
        list_changed_event as list_changed_event,
        snapshot_event as snapshot_event,
    )
    from assay_stream.observe.publisher import (
        ObservationPublisher as ObservationPublisher,
        PublisherLimits as PublisherLimits,
    )
    from assay_stream.observe.recorded import (
        from_assay_log as from_assay_log,
        from_mcp_wire as from_mcp_wire,
        from_observations as from_observations,
    )
    from assay_stream.observe.session import WireObserver as WireObserver
    from assay_stream.observe.sinks import (
        FileSink as FileSink,
        MemorySink as MemorySink,
        Sink as Sink,
        SinkStats as SinkStats,
    )
    from assay_stream.observe.spool import Spool as Spool
    from assay_stream.observe.tap import run_tap as run_tap
    from assay_stream.observe.verdicts import VerdictClient as VerdictClient
    from assay_stream.observe.wire import WireStats as WireStats

_NAMES = {
    "feeds.feed": ("Feed",),
    "observation": (
        *("DigestKey", "Observation", "Prefixes", "Vantage"),
        *("call_event", "list_changed_event", "snapshot_event"),
    ),
    "publisher": ("ObservationPublisher", "PublisherLimits"),
    "recorded": ("from_assay_log", "from_mcp_wire", "from_observations"),
    "session": ("WireObserver",),
    "sinks": ("FileSink", "MemorySink", "Sink", "SinkStats"),
    "spool": ("Spool",),
    "tap": ("run_tap",),
    "verdicts": ("VerdictClient",),
    "wire": ("WireStats",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needing_extra("cli") if _MODULES[name] == "recorded" else nullcontext():
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
