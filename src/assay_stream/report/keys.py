"""The policies in force and the keys known, read from the bindings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from assay_stream.model.control_facts import Policy
from assay_stream.registry.state import Bindings
from assay_stream.report.pins import time_text


def policy_rows(bindings: Bindings, *, server_id: str | None) -> Iterator[dict[str, Any]]:
    """Yield one row for each policy in force.

    Args:
        bindings: the state.
        server_id: only this server, ``None`` for all.
    """
    for name, server in sorted(bindings.servers.items()):
        if server_id not in (None, name):
            continue
        latest: dict[str | None, Policy] = {policy.tool_name: policy for policy in server.controls.policies}
        for tool, policy in sorted(latest.items(), key=lambda item: item[0] or ""):
            yield {
                "server_id": name,
                "tool_name": tool or "*",
                "enforcement": policy.enforcement,
                "unknown": policy.unknown,
                "author": policy.author,
                "reason": policy.reason,
                "since": time_text(policy.time_us),
            }


def key_rows(bindings: Bindings, *, server_id: str | None) -> Iterator[dict[str, Any]]:
    """Yield one row for each observation of a key, each first use, and each decision on a key.

    Args:
        bindings: the state.
        server_id: only this server, ``None`` for all.
    """
    for name, server in sorted(bindings.servers.items()):
        if server_id not in (None, name):
            continue
        controls = server.controls
        for domain, history in sorted(controls.discoveries.items()):
            for found in history:
                yield {
                    "server_id": name,
                    "domain": domain,
                    "what": found.status,
                    "fingerprint": found.fingerprint or "-",
                    "revoked": list(found.revoked),
                    "since": time_text(found.time_us),
                }
        for (domain, tool), use in sorted(controls.first_uses.items()):
            yield {
                "server_id": name,
                "domain": domain,
                "tool_name": tool,
                "what": "first_use",
                "fingerprint": use.fingerprint,
                "since": time_text(use.time_us),
            }
        for decision in controls.key_decisions:
            yield {
                "server_id": name,
                "domain": decision.domain or "*",
                "tool_name": decision.tool_name or "*",
                "what": f"{decision.act}ed" if decision.act == "accept" else "revoked",
                "fingerprint": decision.fingerprint,
                "author": decision.author,
                "reason": decision.reason,
                "since": time_text(decision.time_us),
            }
