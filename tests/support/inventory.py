"""The inventory, new servers and new observers, is left out of dialogues about changes."""

from collections.abc import Iterable

from assay_stream.model.kinds import INVENTORY
from assay_stream.model.record import Output, Role

_IN_ALERTS = tuple(f'"mcp_finding_kind":"{kind}"'.encode() for kind in INVENTORY)


def without_inventory(outputs: Iterable[Output]) -> list[Output]:
    """What was written, without findings and alerts that only say who is new."""
    return [output for output in outputs if not _is_inventory(output)]


def _is_inventory(output: Output) -> bool:
    if output.role is Role.ALERTS:
        return any(kind in (output.value or b"") for kind in _IN_ALERTS)
    return output.label in [f"finding:{kind}" for kind in INVENTORY]
