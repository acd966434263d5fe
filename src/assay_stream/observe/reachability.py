"""What a publisher logs of its brokers: once that they are away, and why, and once that they are back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from assay_stream.errors import ConfigurationError
from assay_stream.kafka.refusals import explained, why_refused
from assay_stream.observe.lookups import run_with_lookups

_log = logging.getLogger(__name__)


class Reachability:
    """Follows whether the brokers are away, in the delivering thread.

    Args:
        connection: aiokafka's connection arguments, to find out why brokers refuse them; ``None`` if not known.
    """

    def __init__(self, connection: Mapping[str, Any] | None) -> None:
        self._connection = connection
        self._away = False

    def note_connected(self, queued: int) -> None:
        returned, self._away = self._away, False
        if returned:
            _log.warning("connected to Kafka again; %d observations are queued", queued)

    def note_failure(self, error: Exception, *, is_last: bool) -> None:
        """Note a failure; what to fix is looked up once each time the brokers go away, but not for the last attempt."""
        if self._away:
            return
        why = "" if is_last else self._why(error)
        self._away = True
        _log.warning("cannot deliver observations to Kafka%s, still trying: %s", self._where(), why)

    def _why(self, error: Exception) -> str:
        cause = explained(error)
        if not isinstance(cause, ConfigurationError) and self._connection is not None:
            cause = run_with_lookups(why_refused(self._connection))
        return str(cause) if isinstance(cause, ConfigurationError) else type(error).__name__

    def _where(self) -> str:
        servers = (self._connection or {}).get("bootstrap_servers")
        return "" if not servers else f" at {servers if isinstance(servers, str) else ','.join(servers)}"
