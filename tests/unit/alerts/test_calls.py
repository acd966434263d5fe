"""Which calls used the tool that an alert is about."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from assay_stream.alerts.calls import Call, Calls
from assay_stream.errors import InputError

B = "sha256:" + "b" * 64
START_MS = 1_772_323_200_000


def evidence(second: int = 1, *, full_digest: str | None = B, number: int = 0, **data: Any) -> bytes:
    """One evidence record."""
    binding = {"scope": "none"} if full_digest is None else {"scope": "exact", "full_digest": full_digest}
    return orjson.dumps(
        {
            "type": "assay.tool.decision",
            "id": f"evidence-{number}",
            "time": f"2026-03-01T00:{second // 60:02}:{second % 60:02}.000000Z",
            "data": {
                "server_id": "server",
                "tool": "tool",
                "tool_call_id": f"call-{number}",
                "observer_id": "proxy-1",
                "decision": "allow",
                "binding": binding,
            }
            | data,
        }
    )


def calls(full_digest: str | None = B) -> Calls:
    """Calls of the tool since the start."""
    return Calls(server_id="server", tool_names=frozenset({"tool"}), full_digest=full_digest, since_ms=START_MS + 1_000)


def test_calls_are_told_apart_by_their_definition() -> None:
    """This one, another one, none; other tools, other servers and earlier calls do not count."""
    found = calls()
    for value in (
        evidence(1),
        evidence(2, full_digest="sha256:" + "a" * 64),
        evidence(3, full_digest=None),
        evidence(4, tool="else"),
        evidence(5, server_id="else"),
        evidence(0),
    ):
        found.add(value)
    assert (found.used, found.other, found.unbound) == (1, 1, 1)
    assert found.latest() == [Call(START_MS + 1_000, "evidence-0", "call-0", "proxy-1", "allow")]


def test_without_a_definition_every_call_counts() -> None:
    """As of a tool that is not listed."""
    found = calls(None)
    found.add(evidence(1, full_digest=None))
    found.add(evidence(2))
    assert found.used == 2


def test_the_latest_are_named_in_whatever_order_they_come() -> None:
    """Twenty of them, the latest first, in bounded memory."""
    found = calls()
    for second in [*range(50, 100), *range(1, 50)]:
        found.add(evidence(second, number=second))
    assert found.used == 99
    assert [call.evidence_id for call in found.latest()] == [f"evidence-{n}" for n in range(99, 79, -1)]


@pytest.mark.parametrize("value", [None, b"", b"x", b"[]", b"{}", b'{"data":1}', evidence(binding=None)])
def test_what_is_no_evidence_is_refused(value: bytes | None) -> None:
    """By its code."""
    with pytest.raises(InputError) as error:
        calls().add(value)
    assert error.value.code == "not_evidence"
