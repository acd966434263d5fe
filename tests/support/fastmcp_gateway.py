"""A FastMCP proxy with our feed, over standard input and output, for tests: run by the Python of its environment.

python tests/support/fastmcp_gateway.py OPTIONS

OPTIONS is JSON: bootstrap_servers, topics (by role), verdicts (the topic, to enforce), stats (a file for the counts at
the end), command (the server's).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

from assay_stream.model.record import Role
from assay_stream.observe import ObservationPublisher, VerdictClient
from assay_stream.observe.feeds.fastmcp import FastMCPFeed
from assay_stream.observe.feeds.feed import Feed

options = json.loads(sys.argv[1])
connection = {"bootstrap_servers": options["bootstrap_servers"]}
publisher = ObservationPublisher(connection, topics={Role(role): topic for role, topic in options["topics"].items()})
publisher.start()
rule = None
if "verdicts" in options:
    verdicts = VerdictClient(connection, topic=options["verdicts"], monotonic_s=time.monotonic)
    verdicts.start()
    rule = verdicts.rule
feed = Feed("time", "gateway", publisher, rule=rule)
proxy = create_proxy(StdioTransport(command=options["command"][0], args=options["command"][1:]))
proxy.add_middleware(FastMCPFeed(feed))


def end(*_: object) -> None:
    feed.close()
    publisher.close()
    stats = publisher.stats
    counts = {"delivered": stats.delivered, "dropped": dict(stats.dropped), "failures": feed.failures}
    Path(options["stats"]).write_text(json.dumps(counts))
    os._exit(0)


signal.signal(signal.SIGTERM, end)
proxy.run(show_banner=False)
end()
