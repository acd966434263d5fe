"""Tool name prefixes of gateways, removed by configured rules, never by guessing.

Rules:

1. A rule is a prefix, separator included, and the server behind it. It holds for every name that begins with it and
   goes on after it.
2. Where the gateway names the server, only that server's prefixes count: a tool of one server cannot pass
   for another's by its name.
3. A name that matches several prefixes is ambiguous: `git_` and `git_hub_` before `hub_x` and `x`
   make the same name. It keeps the shown name, and belongs to no server: ``prefix_ambiguous``.
4. So does a name that matches none: ``prefix_unknown``.
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
    """The server and tool behind a shown name.

    Args:
        tool_name: the server's own name for the tool; the shown name where no rule applies.
        prefix: the gateway's prefix; empty where no rule applies.
        server_id: the server; ``None`` if neither the rules nor the gateway determine it.
        code: why no rule applies.
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
        """Resolve a shown name.

        Args:
            shown: the name as the gateway's clients see it.
            server_id: the server, if the gateway names it.
            among: the possible servers, if the gateway limits them.
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
        """Group the tools of a list by server and prefix, each under its server's own name.

        Tools without a matching rule, and entries without a name, are grouped under no server and no prefix.
        """
        parts: dict[tuple[str | None, str], list[Any]] = {}
        for tool in tools:
            shown = tool.get("name") if isinstance(tool, dict) else None
            own = self.own(shown if isinstance(shown, str) else "", among=among)
            named = {**tool, "name": own.tool_name} if own.prefix else tool
            parts.setdefault((own.server_id, own.prefix), []).append(named)
        return parts


def stated_prefixes(rules: Iterable[str]) -> Prefixes:
    """Parse rules from command-line options, each ``PREFIX=SERVER``.

    Raises:
        ConfigurationError: ``bad_prefix``, or ``bad_identifier`` for a name not allowed in records.
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
