"""What of a library's log lines is written."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
)

from assay_stream.text.escaping import is_unseen
from assay_stream.worker.telemetry import RateLimitFilter, watching_memory


def a_line(
    at_s: float, name: str = "aiokafka", msg: str = "no connection to %s", *about: object, level: int = logging.ERROR
) -> logging.LogRecord:
    record = logging.LogRecord(name, level, "", 0, msg, about or (1,), None)
    record.created = at_s
    return record


def written(lines: list[logging.LogRecord]) -> list[str]:
    seldom = RateLimitFilter()
    return [line.getMessage() for line in lines if seldom.filter(line)]


def test_a_library_says_the_same_once_in_a_while() -> None:
    """Of any broker: what is left out is counted, and told with the next one."""
    lines = [a_line(at / 10, "aiokafka", "no connection to %s", at) for at in range(101)]
    assert written(lines) == ["no connection to 0", "no connection to 100 (and 99 more times since last logged)"]


def test_other_lines_and_other_loggers_are_apart() -> None:
    lines = [a_line(0), a_line(1, msg="leader of %s moved"), a_line(2, name="aiokafka.conn"), a_line(3)]
    assert len(written(lines)) == 3


PRODUCE_ERROR = "Got error produce response on topic-partition %s, retrying. Error: %s"


def a_produce_error(at_s: float, error: type[KafkaError]) -> logging.LogRecord:
    return a_line(at_s, "aiokafka.producer.sender", PRODUCE_ERROR, "tp", error, level=logging.WARNING)


def levels(lines: list[logging.LogRecord]) -> list[str]:
    seldom = RateLimitFilter()
    logging.getLogger("assay_stream").setLevel(logging.INFO)
    return [line.levelname for line in lines if seldom.filter(line)]


def test_what_healthy_brokers_answer_is_no_warning() -> None:
    """A transaction that follows the one before at once, and the first group of a new cluster."""
    logger = "aiokafka.consumer.group_coordinator"
    first = a_line(0, logger, "Group Coordinator Request failed: %s", GroupCoordinatorNotAvailableError())
    moved = a_line(0, logger, "Marking the coordinator dead (node %s)for group %s.")
    assert levels([a_produce_error(0, NotEnoughReplicasError), first, moved]) == ["INFO", "INFO", "INFO"]


def test_an_answer_to_each_of_many_partitions_is_no_warning() -> None:
    lines = [a_produce_error(at / 10, NotEnoughReplicasError) for at in (*range(32), 101)]
    assert levels(lines) == ["INFO", "INFO"]


def test_the_same_answer_again_and_again_is_a_warning() -> None:
    lines = [a_produce_error(at / 10, NotEnoughReplicasError) for at in range(101)]
    assert levels(lines) == ["INFO", "WARNING"]


def test_other_errors_of_the_same_line_keep_their_level() -> None:
    """Only the one that passes by itself is lowered."""
    assert levels([a_produce_error(0, NotLeaderForPartitionError)]) == ["WARNING"]


def test_our_own_lines_all_pass() -> None:
    """They say what an operator must know, each time."""
    assert len(written([a_line(at, name="assay_stream.kafka.runner") for at in range(5)])) == 5


def test_a_clock_that_goes_back_silences_nobody() -> None:
    """A line from before the last one is told."""
    assert len(written([a_line(1_000), a_line(5)])) == 2


def test_no_end_of_kinds_is_remembered() -> None:
    """A library that makes up its lines must not fill the memory."""
    seldom = RateLimitFilter()
    for number in range(5_000):
        assert seldom.filter(a_line(0, msg=f"line {number} of %s"))
    assert len(seldom._said) <= 256


HOSTILE = "\x1b[2J\x9b\x7f\u202e\U000e0041\u200b\u3164\nforged line [red]x[/red]"

LOGGING = """
import logging, sys, structlog
from assay_stream.config import load_settings
from assay_stream.worker.telemetry import configure_logs
name = sys.argv[2].encode().decode("unicode_escape")
configure_logs(load_settings(log_format=sys.argv[1]))
structlog.get_logger("assay_stream.test").warning("event " + name, name=name, names=[name], **{name: 1})
logging.getLogger("aiokafka").error("library %s", name)
try:
    raise ValueError(name)
except ValueError:
    structlog.get_logger("assay_stream.test").exception("failed")
"""


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_log_lines_are_inert(log_format: str) -> None:
    """Names in events, values, keys, libraries' lines and errors; JSON still holds them."""
    hostile = HOSTILE.encode("unicode_escape").decode()
    done = subprocess.run(
        [sys.executable, "-c", LOGGING, log_format, hostile], capture_output=True, text=True, check=True
    )
    lines = done.stderr.split("\n")
    assert not any(is_unseen(character) for line in lines for character in line)
    if log_format == "json":
        events = [json.loads(line) for line in lines if line]
        assert len(events) == 3
        assert events[0]["name"] == HOSTILE
    else:
        assert not any(line.startswith("forged") for line in lines[:2])


def test_memory_that_runs_out_in_a_library_is_acted_upon_once(caplog: pytest.LogCaptureFixture) -> None:
    """Its task has ended, and the process would wait for it. Other errors are the library's own business."""
    acted: list[str] = []
    # Commands in the same process may have quietened it.
    caplog.set_level(logging.WARNING, logger="aiokafka")
    library = logging.getLogger("aiokafka.consumer.fetcher")
    with watching_memory(lambda: acted.append("stop")):
        for error in (ValueError("other"), MemoryError(), MemoryError()):
            library.error("unexpected error in a routine", exc_info=error)
    assert acted == ["stop"]


def test_lines_of_the_host_framework_are_not_ours() -> None:
    """Faust logs each start and stop of a service under the name of the module that inherits it."""
    seldom = RateLimitFilter()
    host, starting = "assay_stream.worker.host", "[^AgentApp]: Starting..."
    assert not seldom.filter(a_line(0, host, starting, level=logging.INFO))
    assert seldom.filter(a_line(0, host, starting, level=logging.WARNING))
    assert seldom.filter(a_line(0, host, "listed a server", level=logging.INFO))
