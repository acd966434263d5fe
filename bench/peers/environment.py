"""What a measured program is told, by environment variables: the same for every peer, in any language."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Topics and names of one run of one program.

    Args:
        bootstrap: the broker, host:port.
        calls_topic: where calls are read.
        bindings_topic: compacted; what each tool's server last listed under its name.
        evidence_topic: where the program writes.
        group: consumer group, and prefix of transactional ids.
        state_dir: a folder of its own.
        version: version of assay-stream, for the envelope.
        record_bytes: how long a pass-through makes the records that it writes; 0 for the call's own bytes.
    """

    bootstrap: str
    calls_topic: str
    bindings_topic: str
    evidence_topic: str
    group: str
    state_dir: str
    version: str
    record_bytes: int = 0

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a child process."""
        return {f"BENCH_{name.upper()}": str(value) for name, value in vars(self).items()}

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Environment:
        """Return what the parent process said.

        Args:
            variables: the environment.
        """
        given: dict[str, Any] = {name: variables[f"BENCH_{name.upper()}"] for name in cls.__dataclass_fields__}
        return cls(**given | {"record_bytes": int(given["record_bytes"])})
