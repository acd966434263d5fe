"""One real Apache Kafka broker on this machine, for tests, measurements and trying things out.

    python deploy/local/kafka.py fetch                            downloads the jars once, into .kafka/
    python deploy/local/kafka.py run [--data DIR] [--port N]      runs until Ctrl-C

    with Broker() as broker:                                      from Python
        connect(broker.bootstrap)

The broker is a single KRaft node, broker and controller in one, on the loopback interface. It needs Java and,
for the download, Maven; nothing else. On Linux it dies with the thread that started it, so start it from one
that lives as long as the broker should: the main thread.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import ctypes
import functools
import os
import random
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ROOT: Final = Path(__file__).resolve().parents[2]
POM: Final = Path(__file__).resolve().parent / "kafka" / "pom.xml"
HOST: Final = "127.0.0.1"

JAVA_MIN: Final = 17  # what Kafka 4 asks of a broker
START_LIMIT_S: Final = 90.0
STOP_LIMIT_S: Final = 20.0

# Below the range from which Linux takes the ports of outgoing connections. A client that reconnects to a dead
# broker's port inside that range can be given this very port as its own, and then talks to itself.
PORTS: Final = range(20_000, 32_000)

_CLUSTER_ID: Final = base64.urlsafe_b64encode(b"assay-stream-dev").decode().rstrip("=")

_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
log.dirs={logs}
auto.create.topics.enable=false
# 16 MiB: lists of tools are large.
message.max.bytes=16777216
replica.fetch.max.bytes=16777216
# One node, few partitions: a quick start.
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
# Tests kill, and wait for what follows.
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
log.cleaner.backoff.ms=1000
log.cleaner.dedupe.buffer.size=16777216
"""


class BrokerError(RuntimeError):
    """The local broker cannot be had: what is wrong, where, and how to mend it."""


def version() -> str:
    """The Kafka version that the pom names."""
    found = re.search(r"<kafka\.version>([^<]+)<", POM.read_text(encoding="utf-8"))
    if found is None:
        raise BrokerError(f"{POM} has no <kafka.version>: restore the property")
    return found[1]


def fetch() -> Path:
    """The folder with the broker's jars; downloads them when they are not there yet."""
    home = ROOT / ".kafka" / version()
    libs = home / "libs"
    if libs.is_dir():
        return libs
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerError(f"cannot fetch Kafka into {libs}: no mvn on the PATH; install Apache Maven")
    home.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home.parent) as scratch:
        fresh = Path(scratch) / "home"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh / 'libs'}"]
        command = [maven, "-B", "-q", "-f", str(POM), *goal]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            mend = f"check that Maven reaches its repository, and the versions in {POM}"
            said = _tail(done.stdout + done.stderr)
            raise BrokerError(f"could not fetch Kafka {version()} into {libs}: {mend}. It says:\n{said}")
        try:
            fresh.rename(home)
        except OSError:
            if not libs.is_dir():  # else someone else was first, with the same jars
                raise
    return libs


class Broker:
    """A broker, running inside its `with` block. `kill` and `start` again keep its ports and data."""

    def __init__(self, data: Path | None = None, *, port: int | None = None, heap_mib: int = 512) -> None:
        """Keep the broker's files in `data`; without it, in a new folder that an orderly exit removes."""
        self._java = _java()
        self._libs = fetch()
        self._throwaway = data is None
        self.data = (data or ROOT / ".run" / f"kafka-{secrets.token_hex(4)}").resolve()
        self.log = self.data / "broker.log"  # of all its starts
        self.port = free_port() if port is None else port
        self.controller_port = free_port(besides={self.port})
        self._heap_mib = heap_mib
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """What a client connects to: `host:port`."""
        return f"{HOST}:{self.port}"

    def properties(self) -> str:
        """The text of the broker's `server.properties`."""
        logs = self.data / "logs"
        return _PROPERTIES.format(host=HOST, port=self.port, controller_port=self.controller_port, logs=logs)

    def format_options(self) -> list[str]:
        """Further arguments of the command that formats the broker's storage."""
        return []

    def start(self) -> None:
        """Start, and return when the broker serves requests."""
        if self._process is not None:
            raise BrokerError(f"the broker on {self.bootstrap} is already started: stop it first")
        for port in (self.port, self.controller_port):
            if not _is_free(port):
                raise BrokerError(f"port {port} on {HOST} is taken: stop what listens there, or use another")
        self.data.mkdir(parents=True, exist_ok=True)
        logs = self.data / "logs"
        properties = self.data / "server.properties"
        properties.write_text(self.properties(), encoding="utf-8")
        if not (logs / "meta.properties").exists():
            tool = self._spawn(
                "kafka.tools.StorageTool",
                "format",
                "-t",
                _CLUSTER_ID,
                "-c",
                str(properties),
                *self.format_options(),
            )
            if tool.wait(START_LIMIT_S) != 0:
                raise self._failed(f"could not format its storage in {logs}")
        self._process = self._spawn("kafka.Kafka", str(properties))
        try:
            self._await_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask the broker to shut down; kill it when that takes longer than `STOP_LIMIT_S`."""
        if self._process is not None:
            self._process.terminate()
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

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        options = [f"-Xmx{self._heap_mib}m", "-Dlog4j2.level=INFO", "-cp", f"{self._libs}/*"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [self._java, *options, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is meant for us; we stop the broker then
                preexec_fn=_die_with_parent(),
            )

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        limit = time.monotonic() + START_LIMIT_S
        while not _serves(self.port):
            if process.poll() is not None:
                raise self._failed(f"died with exit code {process.returncode}")
            if time.monotonic() > limit:
                raise self._failed(f"was not ready after {START_LIMIT_S:.0f} s")
            time.sleep(0.05)

    def _failed(self, how: str) -> BrokerError:
        said = _tail(self.log.read_text(encoding="utf-8", errors="replace"))
        return BrokerError(f"the broker on {self.bootstrap} {how}; {self.log} ends:\n{said}")


def _serves(port: int) -> bool:
    """Whether a Metadata request (version 1, about no topic) is answered, with a broker in the answer."""
    body = struct.pack(">hhih5si", 3, 1, 1, 5, b"assay", 0)
    try:
        with socket.create_connection((HOST, port), timeout=2.0) as link, link.makefile("rb") as answer:
            link.sendall(struct.pack(">i", len(body)) + body)
            _size, _correlation, brokers = struct.unpack(">iii", answer.read(12))
    except (OSError, struct.error):  # no listener yet; an answer cut short
        return False
    return bool(brokers >= 1)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    mend = f"install a JDK, version {JAVA_MIN} or newer"
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        raise BrokerError(f"no java in {f'JAVA_HOME ({home})' if home else 'the PATH'}: {mend}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        raise BrokerError(f"{java} is too old for Kafka {version()}: {mend}. It says:\n{said.strip()}")
    return java


def _die_with_parent() -> Callable[[], object] | None:
    """What the child runs first, so that the kernel kills it when we are gone; on Linux."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork: the child should do little
    return functools.partial(prctl, 1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed links do not count, as for Java
        probe.bind((HOST, port))
        return True
    return False


def free_port(besides: Collection[int] = ()) -> int:
    """A port in `PORTS` that nobody listens on, and that is none of these."""
    for port in random.sample(PORTS, k=200):
        if port not in besides and _is_free(port):
            return port
    raise BrokerError(f"no free port on {HOST} in {PORTS.start}-{PORTS.stop - 1}: stop some listeners")


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-15:])


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
