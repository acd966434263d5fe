"""One real Apache Kafka broker on this machine, for tests, measurements and trying things out.

    python -m deploy.local.kafka fetch                            downloads the jars once, into .kafka/
    python -m deploy.local.kafka run [--data DIR] [--port N]      runs until Ctrl-C

    with Broker() as broker:                                      from Python
        connect(broker.bootstrap)

The broker is a KRaft node, broker and controller in one, on the loopback interface: a quorum of its own, or one of
several (deploy/local/cluster.py). It needs Java and,
for the download, Maven; nothing else. On Linux it dies with the thread that started it, so start it from one
that lives as long as the broker should: the main thread.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import ctypes
import functools
import random
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deploy.local.kafka_jars import ROOT, BrokerError, fetch, java, tail
from deploy.local.kafka_place import HOST, Place

START_LIMIT_S: Final = 90.0
STOP_LIMIT_S: Final = 20.0

# Below the range from which Linux takes the ports of outgoing connections. A client that reconnects to a dead
# broker's port inside that range can be given this very port as its own, and then talks to itself.
PORTS = range(20_000, 32_000)

QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java options for a broker that lives for minutes: less CPU to start, and none later to compile it twice."""

_CLUSTER_ID: Final = base64.urlsafe_b64encode(b"assay-stream-dev").decode().rstrip("=")


class Broker:
    """A broker, running inside its `with` block. `kill` and `start` again keep its ports and data."""

    def __init__(
        self,
        data: Path | None = None,
        *,
        port: int | None = None,
        heap_mib: int = 512,
        options: Sequence[str] = (),
        place: Place | None = None,
    ) -> None:
        """Keep the broker's files in `data`; without it, in a new folder that an orderly exit removes.

        Without a `place` it is a cluster of its own. `options` go to Java.
        """
        self._java = java()
        self._libs = fetch()
        self._throwaway = data is None
        self.data = (data or fresh_folder()).resolve()
        self.log = self.data / "broker.log"  # of all its starts
        if place is None:
            client_port, controller_port = free_ports(2)
            place = Place(port=port or client_port, voters={1: controller_port})
        self.place = place
        self.port = place.port
        self._options = [f"-Xmx{heap_mib}m", *options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """What a client connects to: `host:port`."""
        return f"{HOST}:{self.port}"

    def properties(self) -> str:
        """The text of the broker's `server.properties`."""
        return self.place.properties(self.data / "logs")

    def format_options(self) -> list[str]:
        """Further arguments of the command that formats the broker's storage."""
        return []

    @property
    def running(self) -> bool:
        """Whether its process lives, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, and return when the broker serves requests."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start, and return when the process is there: a node of a quorum serves nothing without the others."""
        if self._process is not None:
            raise BrokerError(f"the broker on {self.bootstrap} is already started: stop it first")
        for port in self.place.ports:
            if not is_free(port):
                raise BrokerError(f"port {port} on {HOST} is taken: stop what listens there, or use another")
        self._process = self._spawn("kafka.Kafka", str(self._formatted()))

    def await_ready(self) -> None:
        """Wait until the broker serves requests; kill it where it does not."""
        if self._process is None:
            raise BrokerError(f"the broker on {self.bootstrap} is not started")
        try:
            self._await_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def pause(self) -> None:
        """Stop the process where it stands, as a machine that hangs would (`SIGSTOP`)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (`SIGCONT`)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask the broker to shut down, paused or not."""
        if self._process is not None:
            self._process.terminate()
            self.resume()

    def stop(self) -> None:
        """Ask the broker to shut down; kill it when that takes longer than `STOP_LIMIT_S`."""
        self.terminate()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_LIMIT_S)
            self.kill()

    def kill(self) -> None:
        """End the broker at once, as a crash would (`kill -9`)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wait(self) -> None:
        """Wait for ever; the broker's death is an error."""
        if self._process is not None:
            raise self._failed(f"died with exit code {self._process.wait()}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._throwaway and not isinstance(error, Exception):
            shutil.rmtree(self.data, ignore_errors=True)

    def _formatted(self) -> Path:
        """The node's configuration file, its storage being formatted."""
        logs = self.data / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        properties = self.data / "server.properties"
        properties.write_text(self.properties(), encoding="utf-8")
        if not (logs / "meta.properties").exists():
            arguments = ["format", "-t", _CLUSTER_ID, "-c", str(properties), *self.format_options()]
            tool = self._spawn("kafka.tools.StorageTool", *arguments)
            if tool.wait(START_LIMIT_S) != 0:
                raise self._failed(f"could not format its storage in {logs}")
        return properties

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        return spawn_java(self._java, self._options, self._libs, *command, log=self.log)

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        limit = time.monotonic() + START_LIMIT_S
        while not serves(self.port):
            if process.poll() is not None:
                raise self._failed(f"died with exit code {process.returncode}")
            if time.monotonic() > limit:
                raise self._failed(f"was not ready after {START_LIMIT_S:.0f} s")
            time.sleep(0.05)

    def _failed(self, how: str) -> BrokerError:
        said = tail(self.log.read_text(encoding="utf-8", errors="replace"))
        return BrokerError(f"the broker on {self.bootstrap} {how}; {self.log} ends:\n{said}")


def fresh_folder() -> Path:
    """A folder of its own for a broker's files, not made yet."""
    return ROOT / ".run" / f"kafka-{secrets.token_hex(4)}"


def serves(port: int) -> bool:
    """Whether a Metadata request (version 1, about no topic) is answered, with a broker in the answer."""
    body = struct.pack(">hhih5si", 3, 1, 1, 5, b"assay", 0)
    try:
        with socket.create_connection((HOST, port), timeout=2.0) as link, link.makefile("rb") as answer:
            link.sendall(struct.pack(">i", len(body)) + body)
            _size, _correlation, brokers = struct.unpack(">iii", answer.read(12))
    except (OSError, struct.error):  # no listener yet; an answer cut short
        return False
    return bool(brokers >= 1)


def spawn_java(java: str, options: Sequence[str], libs: Path, *command: str, log: Path) -> subprocess.Popen[bytes]:
    """Start a Java program that appends what it says to `log`, and ends with us."""
    with log.open("ab") as said:
        return subprocess.Popen(
            [java, *options, "-Dlog4j2.level=INFO", "-cp", f"{libs}/*", *command],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is meant for us; we stop it then
            preexec_fn=_die_with_parent(),
        )


def _die_with_parent() -> Callable[[], object] | None:
    """What the child runs first, so that the kernel kills it when we are gone; on Linux."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork: the child should do little
    return functools.partial(prctl, 1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG


def is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed links do not count, as for Java
        probe.bind((HOST, port))
        return True
    return False


def _candidates() -> Iterator[int]:
    while True:
        yield from random.sample(PORTS, len(PORTS))


_candidate = _candidates()


def free_ports(count: int) -> list[int]:
    """That many ports that nobody listens on. One is given again only after all others: it may not be in use yet."""
    found = list(islice(filter(is_free, islice(_candidate, len(PORTS))), count))
    if len(found) == count:
        return found
    raise BrokerError(f"no free port on {HOST} in {PORTS.start}-{PORTS.stop - 1}: stop some listeners")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 after an orderly stop and 1 after an error."""
    parser = argparse.ArgumentParser(description="One local Apache Kafka broker.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="download the broker's jars, once")
    run = commands.add_parser("run", help="run a broker until SIGINT or SIGTERM")
    run.add_argument("--data", type=Path, help="folder for its data (default: a new one, removed at the end)")
    run.add_argument("--port", type=int, help="port to listen on (default: a free one)")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.command == "fetch":
            print(fetch())
            return 0
        with contextlib.suppress(KeyboardInterrupt), Broker(options.data, port=options.port) as broker:
            print(broker.bootstrap, flush=True)
            broker.wait()
    except BrokerError as error:
        print(f"kafka.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
