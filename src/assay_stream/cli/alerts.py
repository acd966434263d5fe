"""``assay-stream alerts``: list, show and explain alerts, work on them, suppress, export and forward them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from assay_stream.alerts.formats import as_lines, read_alert, view_of
from assay_stream.alerts.page import as_json, as_markdown, as_page, as_text, severity_style
from assay_stream.alerts.view import AlertRow, AlertSelection, ReviewState, SeverityLevel, by_group, row_of, short_uids
from assay_stream.cli.decisions import Deciding, DecidingOnServer, check_known, known_rules
from assay_stream.cli.options import (
    AlertFile,
    AnyServerId,
    AsJson,
    Bootstrap,
    Format,
    WebPort,
    input_lines,
    time_option,
)
from assay_stream.cli.output import Colour, Painter, print_json, print_line, print_rows
from assay_stream.cli.shared import Refusals, argument, ends_now, flag, follow, on_kafka, option, say, show_refused
from assay_stream.cli.store_sources import AlertOptions, HistoryOptions, StoryOptions, every_row, open_store, record_in
from assay_stream.config import Settings, load_settings
from assay_stream.errors import ConfigurationError, InputError, needing_extra
from assay_stream.files.local import path_text, read_config
from assay_stream.forward.receivers import EXAMPLE_ENTERPRISE, TO, Entry, Subscription, read_receivers, secret_from
from assay_stream.kafka.ranges import read_records
from assay_stream.model.control import SUPPRESSION_REMOVE_TYPE, SUPPRESSION_SET_TYPE
from assay_stream.model.fields import compile_glob
from assay_stream.model.finding import ANY_SERVER
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Record, Role
from assay_stream.plugins import FORMATS, RECEIVERS
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter
from assay_stream.report.pins import AlertAct, alert_decision
from assay_stream.text.escaping import LineSpan, shown, visible
from assay_stream.text.times import time_ms_text, time_text

if TYPE_CHECKING:
    AlertFormat = str
else:
    AlertFormat = Literal[tuple(FORMATS.names())]

_MCP_FIELDS = frozenset(
    (
        *("name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta", "icons"),
        *("execution", "arguments", "uriTemplate", "mimeType", "instructions"),
    )
)
"""Top-level fields that MCP gives to tools, prompts, resource templates and servers."""

RuleServer = Annotated[str, option("Your name for the server; '*' for every server.", "--server-id")]
RuleId = Annotated[str, option("Your name for the rule. Setting it again replaces it.", "--id")]


def suppress(
    server_id: RuleServer,
    id_: RuleId,
    by: DecidingOnServer,
    tool: str | None = option("Only tools whose name matches; *, ? and [abc]."),
    kind: Kind | None = option("Only this kind of finding."),
    field: str | None = option("Only changes of this field alone."),
    detection: str | None = option("Only findings of this agent (your own detection).", metavar="AGENT"),
    until: int | None = time_option("When the rule ends.", "--until", ahead=True),
) -> None:
    """Suppress alerts: they are still written, with the status Suppressed and the rule's name."""
    if tool is not None:
        compile_glob(tool)
    if field and field not in _MCP_FIELDS:
        say("--field is not a field that MCP defines: the rule covers nothing unless a server uses that very name")
    if until is not None and until <= time.time_ns() // 1_000:
        raise InputError("bad_time", "--until is in the past: such a rule would cover nothing", path="$.data.until")
    ends = None if until is None else time_text(until)
    limits = {"kind": kind and kind.value, "tool": tool, "field": field, "detection": detection}
    by.decide((SUPPRESSION_SET_TYPE, {"server_id": server_id, "id": id_, "until": ends, **limits}))
    where = "every server" if server_id == "*" else server_id
    given = ", ".join(f"--{name} {value}" for name, value in limits.items() if value is not None)
    covered = f"alerts about {where} with {given}" if given else f"every alert about {where}"
    say(f"suppressed by {id_}: {covered}, {f'until {ends}' if ends else 'without end'}")
    say("an open alert is suppressed from its next record on, at the latest one repeat interval after its last one")


def unsuppress(server_id: RuleServer, id_: RuleId, by: DecidingOnServer) -> None:
    """Remove a suppression rule. Name the server that it was set for; without a rule of that name it is refused."""
    is_checked = by.output is None and not by.new
    if is_checked:
        check_known(
            id_,
            known_rules(server_id, by.bootstrap_servers),
            lambda given: InputError(
                "rule_not_known", f"{server_id} has no rule {given}: check --id and --server-id, or give --new"
            ),
        )
    by.decide((SUPPRESSION_REMOVE_TYPE, {"server_id": server_id, "id": id_}))
    where = "every server" if server_id == ANY_SERVER else server_id
    say(f"rule {id_} on {where} ends{'' if is_checked else ', if there is one'}")


_RULE = ("server_id", "rule_id", "kind", "tool", "field", "detection", "until", "author", "since", "reason")


def rules(looking: HistoryOptions, server_id: AnyServerId = None, as_json: AsJson = False) -> None:
    """List the suppression rules in force, with who set them and why. With --server-id, those that cover it."""
    with open_store(looking, Role.CHANGES) as opened:
        changes = every_row(lambda paging: opened.store.decisions(paging=paging))
        acts = [row for row in changes if row.change.startswith("suppression.")]
    # What is read last counts, whatever its time; all of one server is in one partition.
    latest = {(row.server_id, row.content["rule_id"]): row for row in sorted(acts, key=lambda row: row.origin)}
    listed = []
    for (server, _), row in sorted(latest.items()):
        until_us = row.content.get("until_us")
        is_over = row.change == "suppression.remove" or (until_us is not None and until_us <= time.time_ns() // 1_000)
        if not is_over and (server_id is None or server in (ANY_SERVER, server_id)):
            times = {"until": until_us and time_text(until_us), "since": time_text(row.time_us)}
            listed.append({name: (row.content | times).get(name) for name in _RULE})
    print_rows(listed, _RULE, "json" if as_json else "table", whole=True)
    if not listed and not as_json:
        say("nothing to show")


ServerFilter = Annotated[str | None, option("Only alerts about this server.")]
SeverityFilter = Annotated[
    SeverityLevel | None, option("Only alerts of this severity or higher.", "--severity", "--min-severity")
]


def export(
    looking: AlertOptions,
    target: AlertFormat = option("What to write.", "--format", default="ocsf"),
    since: int | None = time_option("Only alerts of this time or later."),
    server_id: ServerFilter = None,
    severity: SeverityFilter = None,
) -> None:
    """Write alerts to standard output, one per line (SARIF: one document): of a store, the latest record of each.

    Bad alerts are reported and left out, and the exit code is then 2.
    """
    selection = AlertSelection(
        since_ms=None if since is None else since // 1_000, server_id=server_id, severity=severity
    )
    refused = Refusals()
    alerts = (alert for alert in _alerts(looking, refused) if selection.wants(view := view_of(alert), view.time_ms))
    for line in as_lines(alerts, target):
        sys.stdout.buffer.write(line.encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()
    show_refused(refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverOptions:
    """Where alerts go: one receiver, or a file of them."""

    to: str | None = option("webhook:URL or syslog:HOST:PORT[,udp|tcp|tls]; TCP is the default.")
    config: Path | None = option(
        "Several receivers (TOML): webhook, syslog, Splunk HEC, Slack, Teams, PagerDuty: docs/forwarding.md."
    )
    target: AlertFormat | None = option(
        "What to send. Default: ocsf to a webhook, cef to a syslog receiver.", "--format"
    )
    group: str | None = option("Consumer group, one per receiver. Default: <group prefix>-forward-webhook or -syslog.")
    timeout_s: float | None = option("How long one attempt may take. Default: 10.", min=0.1, max=300.0)
    header: str | None = option(
        "Webhook: a further header, its value from an environment variable.", metavar="NAME=VARIABLE"
    )
    hmac_variable: str | None = option(
        "Webhook: sign with the secret in this environment variable.", metavar="VARIABLE"
    )
    ca_file: Path | None = option("CA certificates to trust instead of the system's (PEM).")
    enterprise: int | None = option(
        f"Syslog: private enterprise number of the structured data. Default: {EXAMPLE_ENTERPRISE}.", min=0
    )

    def subscriptions(self, settings: Settings) -> list[Subscription]:
        if self.config is None:
            return [self._subscription(settings)]
        if replace(self, config=None) != ReceiverOptions():
            raise ConfigurationError("bad_option", "options of a receiver go into the --config file")
        raw = read_config(self.config, "bad_receivers")
        return read_receivers(raw, str(self.config), group_prefix=settings.group_prefix)

    def _subscription(self, settings: Settings) -> Subscription:
        if self.to is None:
            raise ConfigurationError("bad_option", "name a receiver with --to, or a file of receivers with --config")
        kind, _, place = self.to.partition(":")
        if kind not in TO:
            raise ConfigurationError(
                "bad_receiver", "--to is webhook:http(s)://HOST/PATH or syslog:HOST:PORT[,udp|tcp|tls] ([::1] for IPv6)"
            )
        plugin = RECEIVERS.load(kind)
        if (self.header, self.hmac_variable) != (None, None) and "header" not in plugin.settings:
            raise ConfigurationError("bad_option", "--header and --hmac-variable are for webhooks")
        if self.enterprise is not None and "enterprise" not in plugin.settings:
            raise ConfigurationError("bad_option", "--enterprise is for syslog")
        fields: dict[str, Any] = {"type": kind, TO[kind]: place}
        # Secrets that environment variables hold, by the setting that would name a file.
        secrets = {}
        if self.header is not None:
            fields["header"], _, variable = self.header.partition("=")
            if not fields["header"] or not variable:
                raise ConfigurationError("bad_option", "--header is NAME=VARIABLE, the name of an environment variable")
            secrets["header_file"] = secret_from(variable, os.environ)
        if self.hmac_variable is not None:
            secrets["hmac_file"] = secret_from(self.hmac_variable, os.environ)
        given = {
            "format": self.target,
            "ca_file": self.ca_file,
            "enterprise": self.enterprise,
            "timeout_s": self.timeout_s,
        }
        fields |= {name: value for name, value in given.items() if value is not None} | dict.fromkeys(secrets)
        group = f"{settings.group_prefix}-forward-{kind}" if self.group is None else self.group
        entry = Entry(fields, f"--to {kind}", secrets=secrets, code="bad_receiver")
        return Subscription(name="forward", receiver=plugin(entry), group=group)


def forward(receivers: ReceiverOptions, web_port: WebPort = None, bootstrap_servers: Bootstrap = None) -> None:
    """Follow the alerts and deliver each at least once, until interrupted.

    A receiver that does not answer is retried, and does not delay the others. Alerts that it refuses permanently go to
    the dead letters.

    Example: assay-stream alerts forward --config receivers.toml
    """
    with needing_extra("worker"):
        from assay_stream.forward.forwarder import run_forwarders
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    run_forwarders(settings, receivers.subscriptions(settings), web_port=web_port)


def _alerts(looking: AlertOptions, refused: Refusals) -> Iterator[dict[str, Any]]:
    """Yield the alert records of a file or of the topic, or the latest of every alert in a store, most severe first.

    A line of a file is an alert, or a record line of an archive.
    """

    async def published(settings: Settings) -> list[tuple[str, bytes | None]]:
        return [(str(record.origin), record.value) async for record in read_records(settings, Role.ALERTS)]

    found: Iterable[tuple[str, bytes | None]]
    if looking.file is not None:
        found = ((f"{looking.file}, line {number}", line) for number, line in input_lines(looking.file))
    elif looking.store is not None:
        with open_store(looking) as opened:
            for row in every_row(lambda paging: opened.store.alerts(AlertFilter(state=None), paging)):
                yield opened.store.alert(row.uid).records[-1]
        return
    else:
        found = on_kafka(looking.settings(), published)
    for where, value in found:
        try:
            if looking.file is not None and value is not None:
                value = record_in(value, Role.ALERTS, Origin(path_text(looking.file), 0, 0)).value
            yield read_alert(value)
        except InputError as error:
            refused.append(f"{where}: {error}")


_HEAD = ("uid", "severity", "kind", "server", "about", "count", "seen by", "first seen", "last seen", "status")
_OPTIONAL = ("seen by", "first seen", "status", "last seen")
_NAMED_MAX = 3
_UID_CHARS = 12
_MINUTE_CHARS = len("2026-03-01T10:00")


ColourOption = Annotated[Colour, option("auto: on a terminal, unless NO_COLOR is set.", "--color")]
Uid = Annotated[str, argument("The alert's uid, or a prefix that no other alert has.", metavar="UID")]


def list_alerts(
    looking: AlertOptions,
    server_id: ServerFilter = None,
    tool: str | None = option("Only tools whose name matches; *, ? and [abc]."),
    kind: Kind | None = option("Only this kind of finding."),
    severity: SeverityFilter = None,
    status: Literal["open", "closed", "suppressed", "all"] = option("Only alerts with this status.", default="open"),
    since: int | None = time_option("Only alerts last seen at this time or later."),
    limit: int | None = option("Maximum number of alerts.", min=1),
    target: Format = "table",
    each: bool = flag("One line per alert instead of one per change."),
    follow_on: bool = flag("Then print each new record of an alert, read from the topics.", "--follow"),
    color: ColourOption = "auto",
) -> None:
    """List the current alerts, most severe first, then most recent. One change on many servers is one line.

    A summary counts the alerts that are not listed. Bad lines are reported, and the exit code is then 2.
    """
    since_ms = None if since is None else since // 1_000
    selection = AlertSelection(since_ms=since_ms, server_id=server_id, severity=severity)
    if follow_on and looking.file is not None:
        raise InputError("bad_option", "--follow reads the topics: leave out --input")
    settings = looking.settings()
    # Noted first: what comes while the list is read may be shown twice, but is not missed.
    starts = ends_now(settings, Role.ALERTS) if follow_on else None
    state = None if status == "all" else ReviewState(status)
    wanted = AlertFilter(selection=selection, state=state, tool_name=tool, kind=None if kind is None else kind.value)
    source = replace(looking, store=None) if follow_on else looking
    # Of one moment: an alert that is seen again moves up, past the page that is read next.
    with open_store(source, Role.ALERTS) as opened, opened.store.moment():
        found = list(every_row(partial(opened.store.alerts, wanted), limit))
        summary = _summary(opened.store, wanted, len(found))
        short, refused = short_uids(opened.store.alert_uids()), opened.refused
    if target == "json":
        for row in found:
            print_json(row.as_json(), sort_keys=True)
        say(summary)
    else:
        if found:
            groups = [[row] for row in found] if each else by_group(found)
            rows: list[list[str | LineSpan]] = []
            for group in groups:
                uid, level, *others = _cells(group, short[group[0].uid])
                rows.append([uid, LineSpan(level, severity_style(group[0].severity_id)), *others])
            Painter(color).table(_HEAD, rows, flexible=("about", "server"), optional=_OPTIONAL)
        typer.echo(summary if found else f"no alerts to show: {summary}")
    if follow_on:

        def take(records: Sequence[Record]) -> None:
            for record in records:
                try:
                    row = row_of(view_of(read_alert(record.value)))
                except InputError as error:
                    say(f"{record.origin}: {error}")
                    continue
                if wanted.fits(row) and target == "json":
                    print_json(row.as_json(), sort_keys=True)
                elif wanted.fits(row):
                    print_line("  ".join(_cells([row], row.uid[:_UID_CHARS])))

        follow(settings, Role.ALERTS, take, starts=starts)
    show_refused(refused)


def _summary(store: Store, wanted: AlertFilter, count: int) -> str:
    states, server_id = store.alert_states(wanted), wanted.selection.server_id
    asked = [state for state in ReviewState if wanted.state in (None, state)]
    left_out = store.alert_states(AlertFilter()) - states
    told = ", ".join(f"{states[state]:,} {state}" for state in asked)
    if count < sum(states[state] for state in asked):
        told = f"{told}; the first {count:,} shown"
    if server_id is not None and not store.alert_states(AlertFilter(selection=AlertSelection(server_id=server_id))):
        fix = "`assay-stream servers list` has the names"
        return f"{told}; no alert, open or closed, is about {shown(server_id)}: {fix}"
    hidden = [f"{states[state]:,} {state}" for state in ReviewState if state not in asked and states[state]]
    filtered = [f"{left_out[state]:,} {state}" for state in asked if left_out[state]]
    told += f"; {', '.join(hidden)} not shown" if hidden else ""
    return f"{told}; {', '.join(filtered)} left out by the filters" if filtered else told


def show(
    uid: Uid,
    sources: StoryOptions,
    full: bool = flag("Show differences in full, up to 10,000 of them."),
    color: ColourOption = "auto",
) -> None:
    """Show one alert: what changed, word by word, why it matters, who saw it, and which calls used the tool.

    Hidden characters, and letters that look like others, are marked: ⟦U+200B ZERO WIDTH SPACE⟧.
    """
    story, refused = sources.story(uid, full=full)
    Painter(color).lines(as_page(story))
    show_refused(refused)


def explain(
    uid: Uid,
    sources: StoryOptions,
    output_format: Literal["text", "json", "markdown"] = option(
        "Text, JSON, or Markdown for a ticket.", "--format", default="text"
    ),
) -> None:
    """Explain an alert in plain sentences: what is known, what is not, and what to do next."""
    story, refused = sources.story(uid)
    if output_format == "json":
        print_json(as_json(story), indented=True)
    else:
        write = as_markdown if output_format == "markdown" else as_text
        for line in write(story):
            print_line(visible(line))
    show_refused(refused)


def _cells(group: list[AlertRow], short: str) -> list[str]:
    def named(names: Iterable[str]) -> str:
        ordered = sorted({shown(name) for name in names if name})
        more = f" and {len(ordered) - _NAMED_MAX:,} more" if len(ordered) > _NAMED_MAX else ""
        return ", ".join(ordered[:_NAMED_MAX]) + more or "-"

    def minute(time_ms: int) -> str:
        return f"{time_ms_text(time_ms)[:_MINUTE_CHARS]}Z"

    row = group[0]
    status = "closed" if row.state is ReviewState.CLOSED else shown(row.status.lower())
    return [
        short,
        shown(row.severity.lower()),
        shown(row.kind),
        named(other.server_id for other in group),
        named(other.tool_name or other.item_name for other in group),
        f"{sum(other.count for other in group):,}",
        f"{max(other.observers for other in group):,}",
        minute(min(other.first_seen_ms for other in group)),
        minute(max(other.last_seen_ms for other in group)),
        ", ".join(filter(None, (status, shown(row.assigned_to)))),
    ]


ACTS: Mapping[AlertAct, str] = {
    "acknowledge": "Acknowledge an alert: it stays quiet until its severity rises, it closes, or it comes back.",
    "assign": "Assign an alert to a person.",
    "comment": "Comment on an alert, open or closed: the reason is the comment.",
    "close": "Close an alert. It stays closed until its cause has ended and comes back, or becomes more severe.",
    "reopen": "Reopen a closed alert.",
}
"""What people do with an alert, and the help of its command."""


def assign(uid: Uid, by: Deciding, to: Annotated[str, option("Assignee.", "--to")], file: AlertFile = None) -> None:
    _decide("assign", uid, by, file, assignee=to)


def _act(act: AlertAct) -> Callable[..., None]:
    def decide(uid: Uid, by: Deciding, file: AlertFile = None) -> None:
        _decide(act, uid, by, file)

    return decide


def _decide(act: AlertAct, uid: str, by: Deciding, file: AlertFile, assignee: str | None = None) -> None:
    with open_store(AlertOptions(file=file, bootstrap_servers=by.bootstrap_servers), Role.ALERTS) as opened:
        for text in opened.refused:
            say(text)
        row = opened.store.alert(uid).row
        alike = every_row(partial(opened.store.alerts, AlertFilter(state=row.state)))
        others = sum(each.group == row.group != "" and each.uid != row.uid for each in alike)
    by.decide(alert_decision(act, server_id=row.server_id, uid=row.uid, assignee=assignee))
    about = "/".join(filter(None, (row.server_id, row.tool_name or row.item_name)))
    is_closed = row.state is ReviewState.CLOSED
    idle = {("close", True): "closed already", ("reopen", False): "open already"}.get((act, is_closed))
    say(f"{idle or act.removesuffix('e') + 'ed'}: {row.uid[:12]} ({row.kind}, {about})")
    if act == "acknowledge" and is_closed:
        say("no change: the alert is closed; reopen it to work on it")
    if others:
        uids = "`assay-stream alerts list --each` has their uids"
        say(f"other {row.state} alerts of this change, unaffected: {others:,} ({uids})")


alerts_app = typer.Typer(help="Triage, export, forward and suppress alerts.", no_args_is_help=True)
alerts_app.command("list")(list_alerts)
alerts_app.command()(show)
alerts_app.command()(explain)
for name, text in ACTS.items():
    alerts_app.command(name, help=text)(assign if name == "assign" else _act(name))
for command in (suppress, unsuppress, rules, export, forward):
    alerts_app.command()(command)
