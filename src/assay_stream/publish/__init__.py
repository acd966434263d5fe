"""What a proxy uses to publish observations: client, tap, sinks, and readers of recorded traffic."""

from assay_stream.publish.adapters import from_assay_log, from_mcp_wire, from_observations
from assay_stream.publish.client import ObservationPublisher
from assay_stream.publish.events import Observation, call_event, list_changed_event, snapshot_event
from assay_stream.publish.mcp_wire import WireObserver, WireStats
from assay_stream.publish.producer import PublisherLimits
from assay_stream.publish.sinks import FileSink, MemorySink, Sink, SinkStats
from assay_stream.publish.tap import run_tap
from assay_stream.publish.vantage import Vantage
from assay_stream.publish.verdicts import VerdictClient

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
