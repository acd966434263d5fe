"""A state for the operator's commands: two observers of one server, pins, rejections, a policy, keys."""

from dataclasses import replace
from hashlib import sha256

from assay_stream.bindings.state import Bindings
from assay_stream.model.facts import ToolFact
from tests.support import facts

US = 1_000_000


def v1(name: str) -> str:
    return "sha256:" + sha256(name.encode()).hexdigest()


APPROVED, OTHER, UNSEEN = v1("one"), v1("two"), v1("never")


def a_state() -> Bindings:
    """``t`` is pinned, and one observer sees another definition; ``same`` is seen alike and has no pin."""
    bindings = Bindings()
    for name in ("one", "two", "same"):
        print_ = facts.a_fingerprint(name)
        schemes = {**print_.schemes, "assay.v1": v1(name)}
        bindings.apply(
            ToolFact.of(
                server_id=facts.SERVER,
                server_scoped=True,
                fingerprint=replace(print_, schemes=schemes),
                packed=facts.PACKED,
            )
        )
    for fact in (
        facts.a_catalogue("c1", {"t": "one", "same": "same"}),
        facts.a_catalogue("c2", {"t": "two", "same": "same"}),
        facts.seen("proxy-1", 1 * US, "c1", offset=0),
        facts.seen("proxy-2", 2 * US, "c2", offset=1),
        facts.a_policy("block", time_us=1 * US, offset=0),
        facts.a_policy("warn", time_us=2 * US, offset=1),
        facts.a_policy("audit", time_us=3 * US, offset=2, tool_name="t"),
        facts.a_pin(UNSEEN, time_us=4 * US, offset=3),
        facts.a_pin(APPROVED, time_us=5 * US, offset=4),
        facts.a_pin(v1("bad"), time_us=6 * US, offset=5, act="reject"),
        facts.a_pin(v1("gone"), time_us=7 * US, offset=6, tool_name="gone"),
        facts.a_key_decision("accept", "sha256:" + "a" * 64, time_us=8 * US, offset=7),
        facts.a_key_decision("revoke", "sha256:" + "b" * 64, time_us=9 * US, offset=8),
        facts.a_discovery("sha256:" + "a" * 64, time_us=10 * US, offset=9, revoked=("sha256:" + "b" * 64,)),
        facts.a_discovery(None, time_us=11 * US, offset=10, status="fetch_failed"),
    ):
        bindings.apply(fact)
    return bindings
