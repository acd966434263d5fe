"""``assay-stream evidence erase``, ``hold``, ``release``, ``erasures`` and ``erase-files``: what is erased, on record,
and what must not be deleted.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
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
from assay_stream.cli.deciding import Deciding
from assay_stream.cli.options import AsJson, Bootstrap, files_option, time_option
from assay_stream.cli.output import json_line, print_json, print_line
from assay_stream.cli.parameters import flag, option
from assay_stream.cli.shared import as_admin, on_kafka, say
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError
from assay_stream.files.erasing import acts_of_files, erase_folder
from assay_stream.kafka.ranges import read_records
from assay_stream.kafka.topics import retention_of, topic_names
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.control import ERASURE_SET_TYPE, HOLD_REMOVE_TYPE, HOLD_SET_TYPE
from assay_stream.model.fields import ScopeField
from assay_stream.model.finding_topic import ANY_SERVER
from assay_stream.model.record import Role
from assay_stream.report.pins import time_text
from assay_stream.text.escaping import counted, shown

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
            raise InputError("bad_time", "--from-time is not before --to-time: exchange them")
        if self.server_id == ANY_SERVER:
            raise InputError("bad_option", f"no server is called {ANY_SERVER}: leave --server-id out for all")
        times = {"from_time": self.from_time, "to_time": self.to_time}
        given = {"server_id": self.server_id, "agent_id": self.agent_id}
        given |= {name: None if time_us is None else time_text(time_us) for name, time_us in times.items()}
        return cast("ScopeField", {name: value for name, value in given.items() if value is not None})


def known_erasures(control: Sequence[Path] | None, bootstrap: str | None) -> Erasures:
    """Return what was erased and what is held, from files or else from the control topic."""
    if control:
        return Erasures(acts_of_files(control))

    async def read(settings: Settings) -> Erasures:
        found = Erasures()
        async for record in read_records(settings, Role.CONTROL):
            for act in acts_in([record]):
                found.take(act)
        return found

    return on_kafka(command_settings(bootstrap_servers=bootstrap), read)


def act_row(act: ScopeAct, **more: Any) -> dict[str, Any]:
    said = {"act": act.act, "id": act.scope_id, "scope": act.scope, "records": act.records, "author": act.author}
    said |= {"reason": act.reason, "time": time_text(act.time_us), "record": str(act.origin), **more}
    return {name: value for name, value in said.items() if value is not None}


def print_act(row: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(row)
        return
    scope = " ".join(f"{name}={value}" for name, value in row.get("scope", {}).items()) or "everything"
    more = [f"{name} {row[name]}" for name in ("erased", "records", "state") if name in row]
    what = f"{row['act']} {row['id']}: {scope}; by {row['author']}, {row['time']}: {row['reason']} ({row['record']})"
    print_line(shown("; ".join([what, *more])))


def print_erased(account: Account) -> None:
    """Print which erasures account for what is not there, with author, time and reason."""
    for act in account.used():
        print_act(act_row(act, erased=account.erased[act.scope_id]), as_json=False)


def erase(
    which: ScopeOptions,
    by: Deciding,
    id_: str | None = option("Name of the erasure. Default: made up.", "--id"),
    dry_run: bool = flag("Only show what it would erase."),
) -> None:
    """Erase calls and their evidence, on record. Shows what it covers, then publishes the decision.

    Give --server-id or --agent, and --to-time. Stores drop the evidence when they read the decision. Files need
    `evidence erase-files`; topics need `archive`, that command, and `topics restore`. A legal hold on any of it forbids
    it. The decision itself, lists, alerts and checkpoints stay.

    Example: assay-stream evidence erase --agent bob --to-time 2026-11-01T00:00:00Z --reason "request 17"
    """
    scope, settings = which.scope(), command_settings(bootstrap_servers=by.bootstrap_servers)
    if not (which.server_id or which.agent_id) or which.to_time is None:
        raise InputError("bad_option", "say what to erase: --server-id or --agent, and --to-time")
    erasures = known_erasures(None, by.bootstrap_servers)
    refuse_held(erasures, scope)
    scope_id = id_ or f"erasure-{uuid.uuid4().hex[:12]}"
    if scope_id in erasures:
        raise InputError("bad_option", f"there is an erasure {scope_id} already: choose another --id")
    found = on_kafka(settings, lambda settings: _hits(settings, scope))
    for topic, count in sorted(found.items()):
        say(f"{topic}: {counted(count, 'record')} in the scope")
    if dry_run:
        return
    records = found[topic_names(settings)[Role.EVIDENCE]]
    by.decide((ERASURE_SET_TYPE, {"server_id": ANY_SERVER, "id": scope_id, "scope": scope, "records": records}))
    say(f"decided: {scope_id}. Not reached by it: exports, alerts, and copies elsewhere (docs/erasure.md)")


async def _hits(settings: Settings, scope: ScopeField) -> Counter[str]:
    # Event times may lie after the record's own.
    since_ms = max(0, span_us(scope)[0] // 1_000 - DEFAULT_LIMITS.future_max_ms)
    found = Counter[str]()
    for role in (Role.CALLS, Role.EVIDENCE):
        found[topic_names(settings)[role]] = 0
        async for record in read_records(settings, role, since_ms=since_ms):
            subject = subject_of(record.value, record.headers)
            found[record.origin.topic] += subject is not None and covers(scope, subject)
    return found


def refuse_held(erasures: Erasures, scope: ScopeField | None = None) -> None:
    """Refuse to delete where a legal hold stands.

    Raises:
        InputError: ``held``.
    """
    for met in erasures.holds(scope):
        raise InputError(
            "held",
            f"legal hold {met.scope_id} of {met.author} ({met.reason}) forbids it: whoever set the hold can take it "
            "back with `evidence release`",
        )


def hold(which: ScopeOptions, by: Deciding, id_: HoldId) -> None:
    """Set a legal hold: no command deletes anything in the scope until it is released. Without a scope: everything.

    Brokers delete by retention all the same: `evidence erasures` shows which topics, and what to run.
    """
    by.decide((HOLD_SET_TYPE, {"server_id": ANY_SERVER, "id": id_, "scope": which.scope()}))
    say(f"held: {id_}. Now run: assay-stream evidence erasures")


def release(by: Deciding, id_: HoldId) -> None:
    """Release a legal hold. Retention settings that were changed for it are to be put back by hand."""
    by.decide((HOLD_REMOVE_TYPE, {"server_id": ANY_SERVER, "id": id_}))
    say(f"released: {id_}. Then: `topics show` names topics whose retention differs from what it was")


def erasures(control: ControlFiles = None, as_json: AsJson = False, bootstrap_servers: Bootstrap = None) -> bool:
    """List erasures and legal holds, and while a hold stands the topics that brokers delete from nevertheless.

    Exit code 1 if there is such a topic; the commands that keep its records are printed.
    """
    known = known_erasures(control, bootstrap_servers)
    standing = known.holds()
    for act in known:
        state = "in force" if act.act == HOLD and act in standing else None
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
        say(f"{topic} expires in spite of the hold ({json_line(found)}); to keep its records:")
        say(
            f"  kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config "
            + ",".join(f"{name}={value}" for name, value in _UNLIMITED.items())
        )
    return bool(limited)


def erase_files(
    source: Annotated[Path, option("Folder of `archive`, `seal archive` or `replay`.", "--input")],
    output: Annotated[Path, option("New folder; the old one stays until you delete it.")],
    control: ControlFiles = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Write a folder of archives or results again, without what was erased on record.

    In place of each erased record stands a stub that names the erasure and, of evidence, keeps the hash of its leaf:
    seals still verify. Prints a summary as one JSON object: records by erasure, and the files that were copied unread.
    """
    known = known_erasures(control, bootstrap_servers)
    found = erase_folder(source, output, known)
    print_json({"erased": found.counts, "copied": found.copied, "held": [hold.scope_id for hold in known.holds()]})
    say(f"{source} still has everything: delete it where nothing else needs it")


def add_to(app: typer.Typer) -> None:
    for command in (erase, hold, release, erasures):
        app.command()(command)
    app.command("erase-files")(erase_files)
