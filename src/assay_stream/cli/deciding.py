"""Shared by the commands that record an operator's decision: the author, and how it is published."""

import getpass
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from assay_stream.cli.options import Bootstrap
from assay_stream.cli.output import print_rows
from assay_stream.cli.parameters import flag, option
from assay_stream.cli.publishing import deliver
from assay_stream.cli.shared import say
from assay_stream.cli.store_sources import HistoryOptions, StoreOptions, known_bindings
from assay_stream.errors import InputError
from assay_stream.model.control import KEY_ACCEPT_TYPE, PIN_REMOVE_TYPE, POLICY_REMOVE_TYPE, POLICY_SET_TYPE
from assay_stream.model.finding_topic import ANY_SERVER
from assay_stream.observe.recorded import decision_event
from assay_stream.report.pins import knows_tool

_ON_TOOLS = frozenset({POLICY_SET_TYPE, POLICY_REMOVE_TYPE, PIN_REMOVE_TYPE, KEY_ACCEPT_TYPE})
"""Decisions that name a tool by hand. A pin that is imported may come before its tool, and rules take patterns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """Author, reason and destination of a decision."""

    reason: Annotated[str, option("Why; recorded in the evidence of the change.")]
    author: str | None = option("Who decides. Default: your login name.", envvar="ASSAY_STREAM_AUTHOR")
    output: Path | None = option("Append the decisions to this NDJSON file, not to Kafka.")
    bootstrap_servers: Bootstrap = None

    def decide(self, *decisions: tuple[str, Mapping[str, Any]]) -> None:
        """Publish decisions, given as event type and data, all effective immediately."""
        who, now = author_or_login(self.author), datetime.now(UTC)
        given = {"author": who, "reason": self.reason}
        observations = [
            decision_event(kind, {**data, **given}, author=who, event_id=str(uuid.uuid4()), decided_at=now)
            for kind, data in decisions
        ]
        deliver(observations, self.output, self.bootstrap_servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidingOnServer(Deciding):
    """The same for a server or tool named by hand, where a typo would decide on nothing."""

    new: bool = flag("Allow a server or tool that no list and no decision has named yet.")

    def decide(self, *decisions: tuple[str, Mapping[str, Any]]) -> None:
        """Publish decisions after checking that their servers and tools exist. Decisions written to a file (``output``)
        are not checked.
        """
        named = {data["server_id"] for _, data in decisions} - {ANY_SERVER}
        if named and self.output is None and not self.new:
            bindings = known_bindings(StoreOptions(bootstrap_servers=self.bootstrap_servers), *named)
            for server_id in sorted(named - bindings.servers.keys()):
                raise InputError(
                    "server_not_known", f"no list and no decision names {server_id}: check it, or give --new"
                )
            for kind, data in decisions:
                tool = data.get("tool_name") if kind in _ON_TOOLS else None
                if tool is not None and not knows_tool(bindings.servers[data["server_id"]], tool):
                    raise InputError(
                        "tool_not_observed",
                        f"no list and no decision on {data['server_id']} names {tool}: check --tool, or give --new",
                    )
        Deciding.decide(self, *decisions)


def author_or_login(author: str | None) -> str:
    if author is not None:
        return author
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise InputError("author_unknown", "nobody is logged in here: say who decides with --author") from None


def print_state(
    looking: HistoryOptions,
    rows_of: Callable[..., Iterable[Mapping[str, Any]]],
    columns: tuple[str, ...],
    *,
    server_id: str | None,
    as_json: bool,
    **which: Any,
) -> None:
    """Print what the registry published about a server, or about all of them."""
    bindings = known_bindings(looking, server_id)
    listed = list(rows_of(bindings, server_id=server_id, **which))
    print_rows(listed, columns, "json" if as_json else "table", whole=True)
    if not listed and not as_json:
        say("nothing to show")
