"""A later release, 0.2.0, with a format level of its own: run it as ``python -m tests.support.future_release``.

At its level, each partition of the registry holds a fact of a new kind, and each of the alerts a state of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import assay_stream
from assay_stream.model import record as records

NEW_FACT = b'["insight","server",1]'
NEW_STATE = b"insight/server"

if __name__ == "__main__":
    assay_stream.__version__ = "0.2.0"
    from assay_stream.model import format_level

    format_level.LEVEL = 2


def teach(writer: Any, reader: Any, read: str, role: records.Role, key: bytes) -> None:
    """Let a state write a record under a new key from level 2 on, and know it when it is read again."""
    flush, restore = writer.flush, getattr(reader, read)

    def flushed(self: Any, positions: Mapping[str, int]) -> list[records.Output]:
        found: list[records.Output] = flush(self, positions)
        new = [records.Output(role, key, b'{"seen":"it"}', partition=found[0].partition)] if self.level >= 2 else []
        return [*found, *new]

    def restored(self: Any, record: records.Record) -> None:
        if record.key != key:
            restore(self, record)

    writer.flush = flushed
    setattr(reader, read, restored)


def main() -> None:
    from assay_stream.bindings.state import Bindings
    from assay_stream.cli import main as run
    from assay_stream.worker.stages import AlertStageTable, RegistryState

    teach(RegistryState, Bindings, "take", records.Role.BINDINGS, NEW_FACT)
    teach(AlertStageTable, AlertStageTable, "restore", records.Role.ALERT_STATES, NEW_STATE)
    run()


if __name__ == "__main__":
    main()
