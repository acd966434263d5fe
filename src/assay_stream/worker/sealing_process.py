"""The process that seals: checks before it starts, and an end within a bound."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.connection import start_admin
from assay_stream.kafka.topics import check_topics, inspect_topics
from assay_stream.model.record import Role
from assay_stream.schemes import dsse
from assay_stream.worker.logs import configure_logs
from assay_stream.worker.sealing import Sealer
from assay_stream.worker.stopping import stopped_by_signals

_log = structlog.get_logger(__name__)


def run_sealer(
    settings: Settings,
    key: Ed25519PrivateKey,
    trusted: dsse.Keys,
    *,
    once: bool,
    every_records: int,
    every_s: float,
    web_port: int | None = None,
    log_name: str,
) -> None:
    """Seal until SIGTERM or SIGINT, or until everything that is there is sealed.

    Args:
        settings: the operator's settings.
        key: signs.
        trusted: keys whose checkpoints are continued.
        once: seal what is there now, and return.
        every_records: records of one range at most.
        every_s: how long a record waits for its checkpoint at most.
        web_port: where health and metrics are served, if anywhere.
        log_name: begins the origin of signed notes.

    Raises:
        ConfigurationError: ``topic_missing``, ``partition_count``, ``web_port_taken``; as ``Sealer.run``.
        OperatingError: ``broker_unreachable`` or ``brokers_failing``.
    """
    configure_logs(settings)
    asyncio.run(
        _seal(
            settings,
            key,
            trusted,
            once=once,
            every_records=every_records,
            every_s=every_s,
            web_port=web_port,
            log_name=log_name,
        )
    )


async def _seal(
    settings: Settings,
    key: Ed25519PrivateKey,
    trusted: dsse.Keys,
    *,
    once: bool,
    every_records: int,
    every_s: float,
    web_port: int | None,
    log_name: str,
) -> None:
    admin = await start_admin(settings, waiting=lambda text: _log.warning("waiting_for_brokers", why=text))
    try:
        counts = check_topics(await inspect_topics(admin, settings), {Role.EVIDENCE, Role.CHECKPOINTS})
    finally:
        await admin.close()
    sealer = Sealer(
        settings,
        key,
        trusted,
        partitions=counts[Role.EVIDENCE],
        every_records=every_records,
        every_s=every_s,
        log_name=log_name,
        now=_now,
    )
    pages = nullcontext() if web_port is None else _pages(settings, sealer, web_port)
    with stopped_by_signals(sealer.stop, limit_s=settings.stop_limit_s):
        async with pages:
            await sealer.run(once=once)


def _now() -> tuple[str, int]:
    now = datetime.now(UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z"), int(now.timestamp() * 1_000)


def _pages(settings: Settings, sealer: Sealer, port: int) -> AbstractAsyncContextManager[None]:
    try:
        from assay_stream.worker.sealing_meter import pages_of
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "extra_missing", f"{error.name} is not installed: pip install 'assay-stream[worker]'"
        ) from None
    return pages_of(settings, sealer, port=port)
