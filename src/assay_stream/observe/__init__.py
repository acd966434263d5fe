"""What a proxy uses to publish observations: client, tap, sinks, and readers of recorded traffic."""

from assay_stream.observe.adapters import from_assay_log, from_mcp_wire, from_observations
from assay_stream.observe.client import ObservationPublisher
from assay_stream.observe.events import Observation, call_event, list_changed_event, snapshot_event
from assay_stream.observe.mcp_wire import WireObserver, WireStats
from assay_stream.observe.producer import PublisherLimits
from assay_stream.observe.sinks import FileSink, MemorySink, Sink, SinkStats
from assay_stream.observe.tap import run_tap
from assay_stream.observe.vantage import Vantage
from assay_stream.observe.verdicts import VerdictClient

KafkaSink = ObservationPublisher

__all__ = [
    "FileSink",
    "KafkaSink",
    "MemorySink",
    "Observation",
    "ObservationPublisher",
    "PublisherLimits",
    "Sink",
    "SinkStats",
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
