"""The programs that are measured, and how each is started."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS_PYTHON = ROOT / ".bench-venv" / "bin" / "python"
KAFKA_STREAMS = Path(__file__).resolve().parent / "kafka-streams"
_BUILT = KAFKA_STREAMS / "target"


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program.

    Args:
        name: how the table calls it.
        command: what starts it; topics and names come by environment.
        joins: whether it writes evidence; a pass-through writes what it reads.
        fills_up: whether a pass-through makes its records as long as evidence.
        transactional: whether its consumer group's offsets tell exactly what was written.
        warm_up_calls: calls that do not count; a JVM compiles while it runs.
    """

    name: str
    command: tuple[str, ...]
    joins: bool = True
    fills_up: bool = False
    transactional: bool = True
    warm_up_calls: int = 20_000


OURS = Program(name="assay-stream", command=(sys.executable, "-m", "assay_stream", "worker", "--role", "join"))

_AIOKAFKA = (sys.executable, "-m", "bench.peers.aiokafka_raw")
_CONFLUENT = (str(PEERS_PYTHON), "-m", "bench.peers.confluent_raw")

PROGRAMS = (
    OURS,
    Program(name="raw-aiokafka", command=_AIOKAFKA, joins=False, fills_up=True),
    Program(name="raw-aiokafka-short", command=_AIOKAFKA, joins=False),
    Program(name="raw-confluent", command=_CONFLUENT, joins=False, fills_up=True),
    Program(name="raw-confluent-short", command=_CONFLUENT, joins=False),
    Program(
        name="kafka-streams",
        command=(
            "java",
            "-Xmx512m",
            "-cp",
            f"{KAFKA_STREAMS}/target/classes:{KAFKA_STREAMS}/target/libs/*",
            "bench.Main",
        ),
    ),
    Program(name="quix", command=(str(PEERS_PYTHON), "-m", "bench.peers.quix_app")),
    Program(name="faust", command=(str(PEERS_PYTHON), "-m", "bench.peers.faust_agent"), transactional=False),
)


def build_kafka_streams() -> None:
    """Compile the Kafka Streams program and fetch what it needs, where that was not done before."""
    maven = shutil.which("mvn")
    if maven is None:
        raise SystemExit("the Kafka Streams program needs Maven: install it, or leave kafka-streams out")
    goals = ["compile"]
    if not (_BUILT / "libs").is_dir():
        goals += ["dependency:copy-dependencies", f"-DoutputDirectory={_BUILT / 'libs'}"]
    subprocess.run([maven, "-B", "-q", "-f", str(KAFKA_STREAMS / "pom.xml"), *goals], check=True)
