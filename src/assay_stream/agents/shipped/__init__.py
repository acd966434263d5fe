"""Eight detections, written with the API for users and nothing else: copy one to begin your own."""

from assay_stream.agents.shipped.denied_burst import agent as denied_burst_agent
from assay_stream.agents.shipped.first_use_spree import agent as first_use_spree_agent
from assay_stream.agents.shipped.open_alert_called import agent as open_alert_called_agent
from assay_stream.agents.shipped.silent_observer import agent as silent_observer_agent
from assay_stream.agents.shipped.steered_calls import agent as steered_calls_agent
from assay_stream.agents.shipped.taken_over import agent as taken_over_agent
from assay_stream.agents.shipped.toxic_flow import agent as toxic_flow_agent
from assay_stream.agents.shipped.unlisted_server import agent as unlisted_server_agent

__all__ = [
    "denied_burst_agent",
    "first_use_spree_agent",
    "open_alert_called_agent",
    "silent_observer_agent",
    "steered_calls_agent",
    "taken_over_agent",
    "toxic_flow_agent",
    "unlisted_server_agent",
]
