"""The process that forwards: checks before it starts, and an end within a bound."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext

import structlog

from assay_stream.alerts.formats import AlertFormat
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.forward.forwarder import Forwarder
from assay_stream.forward.receivers import Receiver
from assay_stream.kafka.connection import start_admin
from assay_stream.kafka.topics import check_topics, inspect_topics
from assay_stream.model.record import Role
from assay_stream.worker.logs import configure_logs
from assay_stream.worker.stopping import stopped_by_signals

_log = structlog.get_logger(__name__)


def run_forwarder(
    settings: Settings,
    receiver: Receiver,
    *,
    target: AlertFormat,
    group: str,
    web_port: int | None = None,
) -> None:
    """Forward alerts until SIGTERM or SIGINT.

    Args:
        settings: the operator's settings.
        receiver: who takes them.
        target: in which format.
        group: the consumer group.
        web_port: where health and metrics are served, if anywhere.

    Raises:
        ConfigurationError: ``topic_missing``, ``bad_group``, ``web_port_taken``, ``extra_missing``.
        OperatingError: ``broker_unreachable`` or ``brokers_failing``.
    """
    own = {f"{settings.group_prefix}-{stage}" for stage in ("registry", "join", "alerts")}
    if group in own or not group.strip():
        raise ConfigurationError("bad_group", "--group must not be a stage's group, or empty: choose another name")
    configure_logs(settings)
    asyncio.run(_forward(settings, receiver, target=target, group=group, web_port=web_port))


async def _forward(
    settings: Settings, receiver: Receiver, *, target: AlertFormat, group: str, web_port: int | None
) -> None:
    admin = await start_admin(settings, waiting=lambda text: _log.warning("waiting_for_brokers", why=text))
    try:
        check_topics(await inspect_topics(admin, settings), {Role.ALERTS, Role.DEAD_LETTERS})
    finally:
        await admin.close()
    forwarder = Forwarder(settings, receiver, target=target, group=group)
    with stopped_by_signals(forwarder.stop, limit_s=settings.stop_limit_s):
        _log.info("forwarding_started", receiver=receiver.name, format=target.value, group=group)
        async with nullcontext() if web_port is None else _pages(settings, forwarder, web_port):
            await forwarder.run()


def _pages(settings: Settings, forwarder: Forwarder, port: int) -> AbstractAsyncContextManager[None]:
    try:
        from assay_stream.forward.meter import pages_of
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "extra_missing", f"{error.name} is not installed: pip install 'assay-stream[worker]'"
        ) from None
    return pages_of(settings, forwarder, port=port)
