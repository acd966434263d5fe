"""A process that publishes a call every few milliseconds, with a spool, until SIGTERM; it says what it took."""

import json
import signal
import sys
import threading
import time
from pathlib import Path

from assay_stream.config import load_settings
from assay_stream.kafka.topics import topic_names
from assay_stream.observe.publisher import ObservationPublisher
from assay_stream.observe.spool import spool_in
from tests.support.ingest import a_call


def main() -> None:
    folder, first = Path(sys.argv[1]), int(sys.argv[2])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings = load_settings()
    publisher = ObservationPublisher(
        {"bootstrap_servers": settings.bootstrap_servers},
        topics=topic_names(settings),
        spool=spool_in(folder, mib_max=16),
    )
    with publisher:
        number = first
        while not stop.wait(0.005):
            if publisher.publish(a_call(number)):
                print(
                    json.dumps({"taken": number, "at_s": time.time(), "spooled": publisher.stats.spooled}), flush=True
                )
            number += 1
        stats = publisher.stats
    print(json.dumps({"dropped": dict(publisher.stats.dropped), "spooled": stats.spooled}), flush=True)


if __name__ == "__main__":
    main()
