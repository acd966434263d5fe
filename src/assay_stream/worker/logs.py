"""Logging: ours as JSON lines or readable text, libraries' from WARNING on, with repeats rate-limited."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from assay_stream.config import Settings
from assay_stream.kafka.connection import GroupCoordinatorNotAvailableError, KafkaError, NotEnoughReplicasError
from assay_stream.text.escaping import json_text, visible

_LIBRARIES = ("faust", "mode", "aiokafka", "aiohttp")
_OURS = "assay_stream"
_SERVICE = "[^"
_INTERVAL_S = 10.0
_KINDS_MAX = 256

_PASSING: dict[tuple[str, str], type[KafkaError] | None] = {
    # The broker makes its topic of offsets when the first group of all asks for its coordinator.
    ("aiokafka.consumer.group_coordinator", "Group Coordinator Request failed"): GroupCoordinatorNotAvailableError,
    # So does a coordinator that has just been made, or moved: the client looks for it anew. It names no error.
    ("aiokafka.consumer.group_coordinator", "Marking the coordinator dead"): None,
    # What brokers answer clients of this protocol while the markers of the last transaction are still written.
    ("aiokafka.producer.sender", "Got error produce response"): NotEnoughReplicasError,
}
"""Logger, start of a line and error (if it names one) of what a client logs as trouble on healthy brokers, and tries
again at once."""
_TROUBLE_COUNT = 10
"""So many of them within an interval are trouble all the same."""


class RateLimitFilter(logging.Filter):
    """Rate-limit repeated library messages: clients log an absent broker hundreds of times a second.

    Suppressed lines are counted, and the next line of their kind has the count. Our own lines all pass. Messages that
    are normal with healthy brokers are logged at INFO.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said_s: dict[tuple[str, str], float] = {}
        self._left_out: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] == _OURS:
            # Faust's services log their starts and stops under the name of the module that inherits them.
            return record.levelno >= logging.WARNING or not str(record.msg).startswith(_SERVICE)
        kind = (record.name, str(record.msg))
        said_s = self._said_s.get(kind)
        if said_s is not None and 0 <= record.created - said_s < _INTERVAL_S:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        if said_s is None and len(self._said_s) >= _KINDS_MAX:
            self._said_s.clear()
            self._left_out.clear()
        self._said_s[kind] = record.created
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            record.msg = f"{record.msg} (and {left_out} more times since last logged)"
        if left_out < _TROUBLE_COUNT and _is_passing(record):
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            return logging.getLogger(_OURS).isEnabledFor(logging.INFO)
        return True


def _is_passing(record: logging.LogRecord) -> bool:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return any(
        record.name == name
        and record.msg.startswith(start)
        and (error is None or any(each is error or isinstance(each, error) for each in arguments))
        for (name, start), error in _PASSING.items()
    )


class _MemoryErrors(logging.Handler):
    """Notices a ``MemoryError`` that a library logs: its task has ended, and the process would wait for it.

    Args:
        act: what to do; called once.
    """

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__(level=logging.WARNING)
        self._act: Callable[[], object] | None = act

    def handle(self, record: logging.LogRecord) -> bool:
        if self._act is not None and record.exc_info and isinstance(record.exc_info[1], MemoryError):
            act, self._act = self._act, None
            act()
        return True


@contextmanager
def watching_memory(act: Callable[[], object]) -> Iterator[None]:
    """Act once a library logs that memory ran out, while the block runs."""
    handler = _MemoryErrors(act)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _inert_line(_logger: object, _method: str, line: object) -> str:
    """Escape in a line of JSON what a terminal would act on."""
    return json_text(str(line))


def _inert_values(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Write out in every value what a terminal would act on; only a stack trace keeps its lines."""
    return {visible(name): _inert_value(name, value) for name, value in event.items()}


def _inert_value(name: str, value: object) -> object:
    if isinstance(value, str):
        return visible(value, keep="\n" if name in ("exception", "stack") else "")
    return value if value is None or isinstance(value, int | float) else visible(repr(value))


def configure_logs(settings: Settings) -> None:
    """Send every log line to standard error in one format.

    Faust builds its debug lines even when nobody prints them, so its loggers are raised, not just filtered.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderers: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer(), _inert_line]
        if settings.log_format == "json"
        else [_inert_values, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RateLimitFilter())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_OURS).setLevel(settings.log_level)
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
