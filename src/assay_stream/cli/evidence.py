"""``assay-stream evidence``: find calls, whatever is known of them; erase them on record, and hold them."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from assay_stream.bindings.erasures import (
    ERASURE,
    HOLD,
    Account,
    Erasures,
    ScopeAct,
    acts_in,
    covers,
    span_us,
    subject_of,
)
from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import DigestKey, redacted_digest
from assay_stream.cli.decisions import Deciding, check_known, control_records
from assay_stream.cli.inventory import Column, Listing, as_object, nothing_found, short_time
from assay_stream.cli.options import AnyServerId, AnyTool, AsJson, Bootstrap, files_option, read_input, time_option
from assay_stream.cli.output import json_line, print_json, print_line
from assay_stream.cli.shared import argument, as_admin, flag, follow, on_kafka, option, say
from assay_stream.cli.store_sources import EvidenceOptions, every_row, open_store
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError, named_in_errors
from assay_stream.files.erasing import acts_of_files, erase_folder
from assay_stream.files.local import secret_of_file
from assay_stream.kafka.ranges import read_records
from assay_stream.kafka.topics import retention_of, topic_names
from assay_stream.limits import DEFAULT_LIMITS, STORE_CANDIDATES_MAX
from assay_stream.model.control import ERASURE_SET_TYPE, HOLD_REMOVE_TYPE, HOLD_SET_TYPE
from assay_stream.model.evidence import Scope, Unbound
from assay_stream.model.fields import Decision, ScopeField
from assay_stream.model.finding import ANY_SERVER
from assay_stream.model.record import Record, Role
from assay_stream.readmodel.queries import Store, load
from assay_stream.readmodel.rows import EvidenceFilter, EvidenceRecord, Paging
from assay_stream.text.escaping import counted, shown
from assay_stream.text.times import time_text

evidence_app = typer.Typer(help="Find calls by server, tool, agent, time or any digest.", no_args_is_help=True)

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
    observer_id: str | None = option("Only calls seen by this observer.", "--observer")
    agent_id: str | None = option("Only calls by this agent.", "--agent")
    since_us: int | None = time_option("Only calls from then on.", "--since")
    until_us: int | None = time_option("Only calls before then.", "--until")
    decision: Decision | None = option("Only calls with this decision.")
    scope: Scope | None = option("Only calls bound by this rule.")
    is_unbound: bool = flag("Only calls without a definition.", "--unbound")
    unbound_reason: Unbound | None = option("Only calls unbound for this reason.")

    def filter(self, digest: str | None = None) -> EvidenceFilter:
        return EvidenceFilter(**asdict(self) | {"is_unbound": self.is_unbound or None}, digest=digest)


Limit = Annotated[int, option("Maximum number of calls; the newest are shown.", min=1)]


@evidence_app.command("list")
def list_evidence(
    looking: EvidenceOptions,
    which: Which,
    digest: str | None = option("Only calls whose evidence has this digest, or prefix of one, of any scheme."),
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
    digest: Annotated[str, argument("A digest or its first 6 or more digits, or a call's id.", metavar="DIGEST")],
    looking: EvidenceOptions,
    which: Which,
    limit: Limit = 50,
    how: Listing = Listing(),
) -> None:
    """Find what a digest identifies, where it occurs, and which calls used it: any digest of any scheme.

    Also takes trace ids, tool call ids and ids of evidence. --json prints the places, then the calls. Exit code 2:
    several digests have that prefix (they are listed). 3: not everything could be read. 5: nothing found.
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
        store = opened.store
        whole = whole_digest(store, what, as_json=as_json)
        found = store.evidence_at(whole)
        if found is None and (rows := store.evidence(EvidenceFilter(digest=whole), Paging(limit=_CANDIDATES_MAX)).rows):
            if len(rows) > 1:
                named = ", ".join(f"{row.origin} ({short_time(row.time_us)})" for row in rows)
                raise InputError("ambiguous_id", f"several calls have it; give the place of one of them: {named}")
            found = store.evidence_of(rows[0].reference)
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
    with named_in_errors(file):
        plain = str(redacted_digest(decode_json(read_input(file))))
    print_line(plain)
    for path in digest_key or ():
        print_line(DigestKey(secret_of_file(path, variable="--digest-key")).keyed(plain) or "")


@evidence_app.command()
def tail(which: Which, as_json: AsJson = False, bootstrap_servers: Bootstrap = None) -> None:
    """Print evidence as it is written (committed records only), one line a call, until interrupted."""

    wanted = which.filter()

    def take(records: Sequence[Record]) -> None:
        with closing(load(records)) as store:
            rows = list(every_row(lambda paging: store.evidence(wanted, paging)))
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


def _list(store: Store, wanted: EvidenceFilter, limit: int, how: Listing) -> int:
    """Print evidence and return the number of rows."""
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


HELD_ROLES = (Role.CALLS, Role.REROUTED, Role.REJECTED, Role.EVIDENCE, Role.SNAPSHOTS, Role.CONTROL, Role.CHANGES)
"""Whose records a hold keeps: calls, their evidence, and what it takes to verify it."""
_UNLIMITED = {"retention.ms": "-1", "retention.bytes": "-1"}

HoldId = Annotated[str, option("Name of the hold.", "--id")]
ControlFiles = Annotated[
    list[Path] | None,
    files_option("Archives with the control records, in place of the topic. Repeatable.", "--control"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeOptions:
    """Which calls and evidence."""

    server_id: str | None = option("Only calls on this server.")
    agent_id: str | None = option("Only calls by this agent.", "--agent")
    from_time: int | None = time_option("Only calls from then on.")
    to_time: int | None = time_option("Only calls before then.")

    def scope(self) -> ScopeField:
        if self.from_time is not None and self.to_time is not None and self.from_time >= self.to_time:
            raise InputError("bad_time", "--from-time must be before --to-time")
        if self.server_id == ANY_SERVER:
            raise InputError("bad_option", f"no server is called {ANY_SERVER}: leave --server-id out for all")
        times = {"from_time": self.from_time, "to_time": self.to_time}
        given = {"server_id": self.server_id, "agent_id": self.agent_id}
        given |= {name: None if time_us is None else time_text(time_us) for name, time_us in times.items()}
        return cast("ScopeField", {name: value for name, value in given.items() if value is not None})


def known_erasures(control: Sequence[Path] | None, bootstrap: str | None) -> Erasures:
    """Return what was erased and what is held, from files or else from the control topic."""
    return Erasures(acts_of_files(control) if control else acts_in(control_records(ANY_SERVER, bootstrap)))


def act_row(act: ScopeAct, **more: Any) -> dict[str, Any]:
    said = {"act": act.act, "id": act.scope_id, "scope": act.scope, "records": act.records, "author": act.author}
    said |= {"reason": act.reason, "time": time_text(act.time_us), "record": str(act.origin), **more}
    return {name: value for name, value in said.items() if value is not None}


def print_act(row: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(row)
        return
    more = [f"{name} {row[name]}" for name in ("erased", "records", "state") if name in row]
    what = f"{row['act']} {row['id']}"
    if "scope" in row:
        what += f": {' '.join(f'{name}={value}' for name, value in row['scope'].items()) or 'everything'}"
    what += f"; by {row['author']}, {row['time']}: {row['reason']} ({row['record']})"
    print_line(shown("; ".join([what, *more])))


def print_erased(account: Account) -> None:
    """Print which erasures account for what is not there, with author, time and reason."""
    for act in account.used():
        print_act(act_row(act, erased=account.erased[act.scope_id]), as_json=False)


@evidence_app.command()
def erase(
    which: ScopeOptions,
    by: Deciding,
    id_: str | None = option("Name of the erasure. Default: generated.", "--id"),
    dry_run: bool = flag("Only show what it would erase."),
) -> None:
    """Erase calls and their evidence, on record. Shows what it covers, then publishes the decision.

    Give --server-id or --agent, and --to-time. Stores drop the evidence when they read the decision. Files need
    `evidence erase-files`; topics need `archive`, that command, and `topics restore`. Refused if a
    legal hold covers any of it. The decision itself, lists, alerts and checkpoints stay.

    Example: assay-stream evidence erase --agent bob --to-time 2026-11-01T00:00:00Z --reason "request 17"
    """
    scope, settings = which.scope(), command_settings(bootstrap_servers=by.bootstrap_servers)
    if not (which.server_id or which.agent_id) or which.to_time is None:
        raise InputError("bad_option", "say what to erase: --server-id or --agent, and --to-time")
    if which.to_time > (time.time_ns() // 1_000_000 + DEFAULT_LIMITS.future_max_ms) * 1_000:
        raise InputError("bad_time", "--to-time is in the future: an erasure covers existing records only")
    erasures = known_erasures(None, by.bootstrap_servers)
    refuse_held(erasures, scope)
    scope_id = id_ or f"erasure-{uuid.uuid4().hex[:12]}"
    if scope_id in erasures:
        raise InputError("bad_option", f"there is an erasure {scope_id} already: choose another --id")
    found = Counter[str]()

    async def count_records(settings: Settings) -> None:
        # Event times may lie after the record's own.
        since_ms = max(0, span_us(scope)[0] // 1_000 - DEFAULT_LIMITS.future_max_ms)
        for role in (Role.CALLS, Role.EVIDENCE):
            found[topic_names(settings)[role]] = 0
            async for record in read_records(settings, role, since_ms=since_ms):
                subject = subject_of(record.value, record.headers)
                found[record.origin.topic] += subject is not None and covers(scope, subject)

    on_kafka(settings, count_records)
    for topic, count in sorted(found.items()):
        say(f"{topic}: {counted(count, 'record')} in the scope")
    if dry_run:
        return
    records = found[topic_names(settings)[Role.EVIDENCE]]
    by.decide((ERASURE_SET_TYPE, {"server_id": ANY_SERVER, "id": scope_id, "scope": scope, "records": records}))
    say(f"decided: {scope_id}. Not reached by it: exports, alerts, and copies elsewhere (docs/erasure.md)")


def refuse_held(erasures: Erasures, scope: ScopeField | None = None) -> None:
    """Refuse to delete where a legal hold stands."""
    for met in erasures.holds(scope):
        raise InputError(
            "held",
            f"legal hold {met.scope_id} of {met.author} ({met.reason}) covers it: release the hold first "
            "(`evidence release`)",
        )


@evidence_app.command()
def hold(which: ScopeOptions, by: Deciding, id_: HoldId) -> None:
    """Set a legal hold: no command deletes anything in the scope until it is released. Without a scope: everything.

    Brokers still delete by retention: `evidence erasures` shows from which topics, and what to run.
    """
    by.decide((HOLD_SET_TYPE, {"server_id": ANY_SERVER, "id": id_, "scope": which.scope()}))
    say(f"held: {id_}. Now run: assay-stream evidence erasures")


@evidence_app.command()
def release(by: Deciding, id_: HoldId) -> None:
    """Release a legal hold. Restore by hand the retention settings that you changed for it."""
    if by.output is None:
        standing = {each.scope_id for each in known_erasures(None, by.bootstrap_servers).holds()}
        check_known(
            id_, standing, lambda given: InputError("hold_not_known", f"there is no legal hold {given}: check --id")
        )
    by.decide((HOLD_REMOVE_TYPE, {"server_id": ANY_SERVER, "id": id_}))
    say(f"released: {id_}. Then: `topics show` names topics whose retention differs from what it was")


@evidence_app.command()
def erasures(control: ControlFiles = None, as_json: AsJson = False, bootstrap_servers: Bootstrap = None) -> bool:
    """List erasures and legal holds, and under a hold the topics from which brokers still delete.

    Exit code 1 if there is such a topic; the commands that keep its records are printed.
    """
    known = known_erasures(control, bootstrap_servers)
    standing = known.holds()
    for act in known:
        state = None
        if act.act == HOLD:
            state = "in force" if act in standing else "no longer in force"
        if act.act == ERASURE and known.erasure(act.scope_id) is not act:
            met = known.held_by(act)
            state = "counts for nothing: " + ("its id was taken" if met is None else f"hold {met.scope_id} stood")
        print_act(act_row(act, state=state), as_json=as_json)
    if not standing or control:
        return False
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    kept = asyncio.run(as_admin(settings, lambda admin, settings: retention_of(admin, settings, HELD_ROLES)))
    limited = {topic: found for topic, found in kept.items() if found != _UNLIMITED}
    for topic, found in sorted(limited.items()):
        say(f"{topic} still expires despite the hold ({json_line(found)}); to keep its records:")
        say(
            f"  kafka-configs.sh --bootstrap-server {settings.bootstrap_servers} --alter --entity-type topics "
            f"--entity-name {topic} --add-config " + ",".join(f"{name}={value}" for name, value in _UNLIMITED.items())
        )
    return bool(limited)


@evidence_app.command("erase-files")
def erase_files(
    source: Annotated[Path, option("Folder of `archive`, `seal archive` or `replay`.", "--input")],
    output: Annotated[Path, option("New folder; the old one stays until you delete it.")],
    control: ControlFiles = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Rewrite a folder of archives or results without what was erased on record.

    Each erased record is replaced by a stub that names the erasure and, for evidence, keeps the hash of its leaf, so
    seals still verify. Prints a summary as one JSON object: records by erasure, and the files that were copied unread.
    """
    known = known_erasures(control, bootstrap_servers)
    found = erase_folder(source, output, known)
    print_json({"erased": found.counts, "copied": found.copied, "held": [hold.scope_id for hold in known.holds()]})
    say(f"{source} still has everything: delete it where nothing else needs it")
