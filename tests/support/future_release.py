"""A later release, 0.2.0, with a format level of its own: run it as ``python -m tests.support.future_release``.

At its level, each partition of the registry holds a fact of a new kind, and each of the alerts a state of one; facts
of progress, and changed states, have a new member.
"""

from collections.abc import Mapping
from typing import Any

import orjson

import assay_stream
from assay_stream.model import record as records

NEW_FACT = b'["insight","server",1]'
NEW_STATE = b"insight/server"
NEW_MEMBER = "insight"

if __name__ == "__main__":
    assay_stream.__version__ = "0.2.0"
    from assay_stream.model import state_table

    state_table.LEVEL = 2


def teach(writer: Any, reader: Any, read: str, role: records.Role, key: bytes) -> None:
    """Let a state write a record under a new key and a new member from level 2 on, and know them when it reads."""
    flush, restore = writer.flush, getattr(reader, read)

    def flushed(self: Any, positions: Mapping[str, int]) -> list[records.Output]:
        found: list[records.Output] = flush(self, positions)
        if self.level < 2:
            return found
        new = records.Output(role, key, b'{"seen":"it"}', partition=found[0].partition)
        return [*(each._replace(value=_grown(each.value)) for each in found), new]

    def restored(self: Any, record: records.Record) -> None:
        if record.key != key:
            restore(self, record._replace(value=_grown(record.value, {})))

    writer.flush = flushed
    setattr(reader, read, restored)


def _grown(value: bytes | None, more: Mapping[str, str] = {NEW_MEMBER: "it"}) -> bytes | None:
    """Return a JSON object with other new members than it has."""
    if value is None:
        return None
    return orjson.dumps({name: each for name, each in orjson.loads(value).items() if name != NEW_MEMBER} | dict(more))


def main() -> None:
    from assay_stream.bindings.state import Bindings
    from assay_stream.cli import main as run
    from assay_stream.worker.stages import AlertStageTable, RegistryState

    teach(RegistryState, Bindings, "take", records.Role.BINDINGS, NEW_FACT)
    teach(AlertStageTable, AlertStageTable, "restore", records.Role.ALERT_STATES, NEW_STATE)
    run()


if __name__ == "__main__":
    main()
