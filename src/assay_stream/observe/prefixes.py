"""Prefixes that gateways put before tool names: undone by rules that an operator states, never by a guess.

Rules:

1. A rule is a prefix, separator included, and the server behind it. It holds for every name that begins with it and
   goes on after it.
2. Where the gateway says which server is meant, only that server's prefixes count: a tool of one server cannot pass
   for another's by its name.
3. Where a name fits several prefixes, it is not known whose tool it is: `git_` and `git_hub_` before `hub_x` and `x`
   make the same name. It keeps the name that was shown, and belongs to no server: ``prefix_ambiguous``.
4. So does a name that fits none: ``prefix_unknown``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assay_stream.errors import ConfigurationError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.observe.observation import Vantage

PrefixCode = Literal["prefix_ambiguous", "prefix_unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnName:
    """Whose tool a shown name means.

    Args:
        tool_name: the server's own name for the tool; the shown name where no rule holds.
        prefix: what the gateway put before it; empty where no rule holds.
        server_id: the server, if the rules or the gateway say which.
        code: why no rule holds.
    """

    tool_name: str
    prefix: str = ""
    server_id: str | None = None
    code: PrefixCode | None = None


class Prefixes:
    """The rules of one gateway.

    Args:
        servers: the server behind each prefix.

    Raises:
        ConfigurationError: ``bad_prefix``.
    """

    def __init__(self, servers: Mapping[str, str]) -> None:
        for prefix, server_id in servers.items():
            # The name of an observer is checked with those of servers.
            Vantage(server_id=server_id, observer_id="-", shown_prefix=prefix)
            if not prefix:
                raise ConfigurationError("bad_prefix", f"the prefix of {server_id!r} is empty: leave it out")
        self._servers = dict(servers)
        self._lengths = sorted({len(prefix) for prefix in servers})

    def own(self, shown: str, *, server_id: str | None = None, among: Collection[str] | None = None) -> OwnName:
        """Return whose tool a name means.

        Args:
            shown: the name as the gateway's clients see it.
            server_id: the server that the gateway says is meant.
            among: the servers that it may be, if the gateway says so much.
        """
        candidates = {server_id} if server_id is not None else among
        starts = [shown[:length] for length in self._lengths if length < len(shown)]
        fitting = [(start, self._servers[start]) for start in starts if start in self._servers]
        found = [(prefix, server) for prefix, server in fitting if candidates is None or server in candidates]
        if len(found) != 1:
            code: PrefixCode = "prefix_ambiguous" if found else "prefix_unknown"
            return OwnName(tool_name=shown, server_id=server_id, code=code)
        [(prefix, server)] = found
        return OwnName(tool_name=shown[len(prefix) :], prefix=prefix, server_id=server)

    def split(
        self, tools: Iterable[Any], *, among: Collection[str] | None = None
    ) -> dict[tuple[str | None, str], list[Any]]:
        """Return the tools of a list by server and prefix, each under its server's own name.

        Tools that no rule gives to a server, and whatever has no name, stand under no server and no prefix.
        """
        parts: dict[tuple[str | None, str], list[Any]] = {}
        for tool in tools:
            shown = tool.get("name") if isinstance(tool, dict) else None
            own = self.own(shown if isinstance(shown, str) else "", among=among)
            named = {**tool, "name": own.tool_name} if own.prefix else tool
            parts.setdefault((own.server_id, own.prefix), []).append(named)
        return parts


def stated_prefixes(rules: Iterable[str]) -> Prefixes:
    """Return the rules that options state, each as ``PREFIX=SERVER``.

    Raises:
        ConfigurationError: ``bad_prefix``, or ``bad_identifier`` for a name that no record may carry.
    """
    servers: dict[str, str] = {}
    for rule in rules:
        prefix, equals, server_id = rule.partition("=")
        if not equals or not prefix or servers.setdefault(prefix, server_id) != server_id:
            raise ConfigurationError(
                "bad_prefix", "write each prefix once, as PREFIX=SERVER, separator included: --prefix github_=github"
            )
    if len(servers) > DEFAULT_LIMITS.prefixes_max:
        raise ConfigurationError("bad_prefix", f"a gateway has at most {DEFAULT_LIMITS.prefixes_max} prefixes")
    return Prefixes(servers)
