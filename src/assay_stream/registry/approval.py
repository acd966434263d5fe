"""Whether operators approved a definition of a server: by their pins as they stand now."""

from __future__ import annotations

from assay_stream.model.evidence import PinStatus
from assay_stream.registry.pins import check_pins
from assay_stream.registry.state import ServerBindings
from assay_stream.registry.timeline import AFTER_ALL_US


def is_approved(server: ServerBindings, name: str, full: str) -> bool:
    """Return whether a definition matches the pins of its tool, and no pin contradicts it."""
    if name not in server.controls.pins:
        return False
    found = server.tools.get((True, full)) or server.tools.get((False, full))
    policy = server.controls.policy_as_of(name, AFTER_ALL_US)
    pins = server.controls.pins_as_of(name, AFTER_ALL_US)
    return check_pins(pins, found, policy=policy).status is PinStatus.MATCH
