"""Policies in force and keys known."""

from __future__ import annotations

from assay_stream.report.pins import key_rows, policy_rows
from tests.support import facts
from tests.support.operators import a_state


def test_the_last_policy_of_each_scope_is_in_force() -> None:
    rows = list(policy_rows(a_state(), server_id=None))
    assert [(row["tool_name"], row["enforcement"], row["since"]) for row in rows] == [
        ("*", "warn", "1970-01-01T00:00:02Z"),
        ("t", "audit", "1970-01-01T00:00:03Z"),
    ]
    assert rows[0] | {"unknown": "allow_degraded", "author": "ann", "reason": "review"} == rows[0]


def test_keys_by_where_they_come_from() -> None:
    rows = list(key_rows(a_state(), server_id=facts.SERVER))
    assert [(row["what"], row["domain"], row["fingerprint"][:8]) for row in rows] == [
        ("observed", "example.com", "sha256:a"),
        ("fetch_failed", "example.com", "-"),
        ("accepted", "example.com", "sha256:a"),
        ("revoked", "*", "sha256:b"),
    ]
    assert rows[0]["revoked"] == ["sha256:" + "b" * 64]
    assert (rows[2]["tool_name"], rows[2]["author"]) == ("*", "ann")


def test_another_server_has_none_of_it() -> None:
    assert list(policy_rows(a_state(), server_id="other")) == []
    assert list(key_rows(a_state(), server_id="other")) == []
