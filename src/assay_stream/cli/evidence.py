"""``assay-stream evidence``: find calls, whatever is known of them: server, tool, observer, agent, time, any digest."""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest_key import DigestKey
from assay_stream.canonical.redaction import redacted_digest
from assay_stream.cli import erasing
from assay_stream.cli.files import read_input
from assay_stream.cli.inventory import Column, Listing, as_object, nothing_found, short_time
from assay_stream.cli.options import AnyServerId, AnyTool, AsJson, Bootstrap, check_span, time_option
from assay_stream.cli.output import json_line, print_json, print_line
from assay_stream.cli.parameters import argument, flag, option
from assay_stream.cli.shared import follow, say
from assay_stream.cli.store_sources import EvidenceOptions, every_row, open_store
from assay_stream.config import command_settings
from assay_stream.errors import InputError
from assay_stream.files.local import secret_of_file
from assay_stream.limits.storage import STORE_CANDIDATES_MAX
from assay_stream.model.evidence import Scope, Unbound
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel.queries import Store, load
from assay_stream.readmodel.rows import EvidenceFilter, EvidenceRecord, Paging
from assay_stream.report.pins import time_text
from assay_stream.text.escaping import counted, shown

evidence_app = typer.Typer(help="Find calls by server, tool, agent, time or any digest.", no_args_is_help=True)

_ORIGIN = re.compile(r"(.+)/([0-9]{1,9})/([0-9]{1,18})")
_CUT = re.compile(r"(sha256:)?[0-9a-f]{1,63}…?")
_CANDIDATES_MAX = 10
_COLUMNS: tuple[Column, ...] = (
    *("time_us", "server_id", "tool_name", "observer_id", "agent_id", "decision"),
    ("bound", lambda row: row.scope if row.unbound_reason is None else row.unbound_reason),
    "digests",
)
_PLACE: tuple[Column, ...] = (
    ("what", lambda place: f"{place.digest.role} {place.digest.scheme}"),
    *("server_id", "tool_name"),
)
_CALLS: Column = ("calls", lambda place: f"{place.calls:,}" if place.calls else "-")
_EVERYWHERE = (*(Role.BINDINGS, Role.DEFINITIONS, Role.VERDICTS, Role.CHANGES, Role.ALERTS), Role.EVIDENCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Which calls."""

    server_id: AnyServerId = None
    tool_name: AnyTool = None
    observer_id: str | None = option("Only what this observer saw.", "--observer")
    agent_id: str | None = option("Only calls by this agent.", "--agent")
    since_us: int | None = time_option("Only calls from then on.", "--since")
    until_us: int | None = time_option("Only calls before then.", "--until")
    decision: str | None = option("Only calls with this decision: allow, deny, ...")
    scope: Scope | None = option("Only calls bound by this rule.")
    is_unbound: bool = flag("Only calls without a definition.", "--unbound")
    unbound_reason: Unbound | None = option("Only calls unbound for this reason.")

    def filter(self, digest: str | None = None) -> EvidenceFilter:
        check_span(self.since_us, self.until_us)
        return EvidenceFilter(**asdict(self) | {"is_unbound": self.is_unbound or None}, digest=digest)


Limit = Annotated[int, option("Calls at most, the newest.", min=1)]


@evidence_app.command("list")
def list_evidence(
    looking: EvidenceOptions,
    which: Which,
    digest: str | None = option("Only calls whose evidence has this digest, of any scheme; or its beginning."),
    limit: Limit = 50,
    how: Listing = Listing(),
) -> None:
    """List evidence of calls, newest first.

    Exit code 3: not all could be read. 5: no call matches.
    """
    with open_store(looking, Role.EVIDENCE) as opened:
        wanted = which.filter(None if digest is None else whole_digest(opened.store, digest, as_json=how.as_json))
        if not _list(opened.store, wanted, limit, how):
            nothing_found(_not_found(digest))


@evidence_app.command()
def search(
    digest: Annotated[str, argument("Or its first 6 digits or more; or a call's id.", metavar="DIGEST")],
    looking: EvidenceOptions,
    which: Which,
    limit: Limit = 50,
    how: Listing = Listing(),
) -> None:
    """Find what a digest identifies, where it occurs, and which calls used it: any digest of any scheme.

    Also takes trace ids, tool call ids and ids of evidence. --json prints the places, then the calls. Exit code 2:
    several digests begin like that (they are listed). 3: not everything could be read. 5: nothing has it.
    """
    with open_store(looking, *_EVERYWHERE) as opened:
        digest = whole_digest(opened.store, digest, as_json=how.as_json)
        places = opened.store.places(digest)
        listed = [place for place in places if how.as_json or place.place != "evidence"]
        how.print(listed, "place", *_PLACE, _CALLS, "reference", optional=("reference",))
        if listed and not how.as_json:
            print_line("")
        if not _list(opened.store, which.filter(digest), limit, how):
            if not places:
                nothing_found(_not_found(digest))
            say("no call used it" if which == Which() else "no call that matches the options used it")


@evidence_app.command()
def show(
    what: Annotated[
        str, argument("Id of the evidence or of the call, a digest, or TOPIC/PARTITION/OFFSET.", metavar="ID")
    ],
    looking: EvidenceOptions,
    as_json: AsJson = False,
) -> None:
    """Show the evidence of one call, with every digest in it and its scheme. --json prints the record unchanged.

    Exit code 3: not everything could be read. 5: there is no such call.
    """
    with open_store(looking, Role.EVIDENCE) as opened:
        found = _the_one(opened.store, whole_digest(opened.store, what, as_json=as_json))
        if found is None:
            nothing_found(_not_found(what))
        elif as_json:
            print_json(decode_json(found.value))
        else:
            _print_record(found)


@evidence_app.command()
def digest(
    file: Annotated[Path, argument("The arguments or the result as JSON, or `-` (stdin).")],
    digest_key: list[Path] | None = option("Also print the digest under the key in this file. Repeatable."),
) -> None:
    """Print the digests that evidence has of these arguments, or of this result: search for them with `search`.

    Redacts first, as observers do.

    Example: echo '{"city": "Bern"}' | assay-stream evidence digest - --digest-key digest.key
    """
    plain = str(redacted_digest(decode_json(read_input(file))))
    print_line(plain)
    for path in digest_key or ():
        print_line(DigestKey(secret_of_file(path, variable="--digest-key")).keyed(plain) or "")


@evidence_app.command()
def tail(which: Which, as_json: AsJson = False, bootstrap_servers: Bootstrap = None) -> None:
    """Print evidence as it is written (committed records only), one line a call, until interrupted."""

    def take(records: Sequence[Record]) -> None:
        with closing(load(records)) as store:
            rows = list(every_row(lambda paging: store.evidence(which.filter(), paging)))
        for row in reversed(rows):
            if as_json:
                print_json(as_object(row))
            else:
                print_line("  ".join(map(shown, Listing().cells(row, *_COLUMNS))))

    follow(command_settings(bootstrap_servers=bootstrap_servers), Role.EVIDENCE, take)


def whole_digest(store: Store, text: str, *, as_json: bool) -> str:
    """Complete a digest prefix; other text is returned unchanged. If several digests match, print them."""
    found = store.candidates(text)
    if len(found) < 2:
        return found[0].digest.value if found else text
    Listing(as_json=as_json, wide=True).print(found, ("digest", lambda found: found.digest.value), *_PLACE)
    more = " at least" if len(found) == STORE_CANDIDATES_MAX else ""
    raise InputError("ambiguous_digest", f"{more} {len(found)} digests begin with {text}: give more digits".strip())


def _the_one(store: Store, what: str) -> EvidenceRecord | None:
    if place := _ORIGIN.fullmatch(what):
        return store.evidence_at(Origin(place[1], int(place[2]), int(place[3])))
    rows = store.evidence(EvidenceFilter(digest=what), Paging(limit=_CANDIDATES_MAX)).rows
    if len(rows) > 1:
        named = ", ".join(f"{row.origin} ({short_time(row.time_us)})" for row in rows)
        raise InputError("ambiguous_id", f"several calls have it; give the place of one of them: {named}")
    return store.evidence_of(rows[0].reference) if rows else None


def _list(store: Store, wanted: EvidenceFilter, limit: int, how: Listing) -> int:
    """Print evidence and return the number of rows. States if there is more."""
    rows = list(every_row(lambda paging: store.evidence(wanted, paging), limit + 1))
    how.print(rows[:limit], *_COLUMNS, optional=("agent_id", "observer_id", "bound"))
    if len(rows) > limit:
        say(f"only the newest {counted(limit, 'call')} shown; for more, use --limit, --since or --until")
    return len(rows)


def _print_record(found: EvidenceRecord) -> None:
    row = found.row
    facts: list[tuple[str, Any]] = [
        ("time", time_text(row.time_us)),
        ("server", row.server_id),
        ("tool", row.tool_name),
        ("observer", row.observer_id),
        ("agent", row.agent_id),
        ("decision", row.decision),
        ("ok", None if row.ok is None else json_line(row.ok)),
        ("bound by", row.scope if row.unbound_reason is None else f"nothing: {row.unbound_reason}"),
        ("evidence at", row.origin),
        *((f"{digest.role} {digest.scheme}", digest.value) for digest in found.digests),
    ]
    width = max(len(name) for name, value in facts if value is not None)
    for name, value in facts:
        if value is not None:
            print_line(f"{shown(name):<{width}}  {shown(str(value))}")


def _not_found(what: str | None) -> str:
    if what is None:
        return "no call matches"
    if _CUT.fullmatch(what.strip().lower()):
        return (
            f"no digest or id begins with {what} (give 6 digits at least; digests of arguments, results and records, "
            "and ids, must be whole)"
        )
    return f"no digest or id is {what}"


erasing.add_to(evidence_app)
