"""What the store is asked, and what it answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from assay_stream.alerts.view import AlertSelection, ReviewState, SeverityLevel, read_alert, row_of, view_of
from assay_stream.errors import InputError
from assay_stream.limits import STORE_CANDIDATES_MAX, STORE_PAGE_ROWS_MAX, STORE_SUBJECTS_SOUGHT_MAX
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel import calls, calls_queries
from assay_stream.readmodel.calls import compressed
from assay_stream.readmodel.queries import Store, load
from assay_stream.readmodel.rows import AlertFilter, EvidenceFilter, EvidenceRow, Paging, cursor_of
from tests.support.errors import raises_code
from tests.support.readmodel import NOW_US, data_of, history, of_role
from tests.support.stories import changed_alert

STORE = load(history())
EVIDENCE = of_role(history(), Role.EVIDENCE)


def every(wanted: EvidenceFilter, store: Store = STORE, limit: int = 7) -> list[EvidenceRow]:
    page = store.evidence(wanted, Paging(limit=limit))
    rows = [*page.rows]
    while page.following is not None:
        page = store.evidence(wanted, Paging(limit=limit, after=page.following))
        rows += page.rows
    return rows


def expected(**fields: Any) -> list[Record]:
    return [record for record in EVIDENCE if data_of(record).items() >= fields.items()]


FILTERS = [
    ({}, {}),
    ({"server_id": "server-1"}, {"server_id": "server-1"}),
    ({"tool_name": "tool_2"}, {"tool": "tool_2"}),
    ({"observer_id": "observer-1"}, {"observer_id": "observer-1"}),
    ({"agent_id": "agent-3"}, {"actor": {"agent_id": "agent-3", "kind": "agent"}}),
    ({"decision": "allow"}, {"decision": "allow"}),
    (
        {"server_id": "server-1", "tool_name": "tool_2", "decision": "allow"},
        {"server_id": "server-1", "tool": "tool_2"},
    ),
    ({"server_id": "nobody"}, {"server_id": "nobody"}),
    ({"decision": "deny"}, {"decision": "deny"}),
    ({"is_unbound": True}, {"unbound_reason": "x"}),
]


@pytest.mark.parametrize(("wanted", "fields"), FILTERS)
def test_filters_select_what_a_scan_selects(wanted: dict[str, Any], fields: dict[str, Any]) -> None:
    """Every filter gives the records that have the value, newest first, each once, over all pages."""
    rows = every(EvidenceFilter(**wanted))
    assert sorted(row.origin for row in rows) == sorted(record.origin for record in expected(**fields))
    assert [row.time_us for row in rows] == sorted((row.time_us for row in rows), reverse=True)


def test_a_range_of_time_has_its_beginning_and_not_its_end() -> None:
    """``since`` is inclusive, ``until`` exclusive."""
    times = sorted(row.time_us for row in every(EvidenceFilter()))
    wanted = EvidenceFilter(since_us=times[5], until_us=times[10])
    assert sorted(row.time_us for row in every(wanted)) == times[5:10]
    assert every(EvidenceFilter(since_us=times[-1] + 1)) == []
    assert len(every(EvidenceFilter(since_us=-(2**70), until_us=2**70))) == len(EVIDENCE)


@pytest.mark.parametrize("sought_max", [0, STORE_SUBJECTS_SOUGHT_MAX])
def test_every_digest_of_a_record_finds_it(monkeypatch: pytest.MonkeyPatch, sought_max: int) -> None:
    """Digests of any scheme, identifiers and hashes lead to the record, and only to those that have them."""
    monkeypatch.setattr(calls_queries, "STORE_SUBJECTS_SOUGHT_MAX", sought_max)
    schemes = set()
    for record in EVIDENCE[:10]:
        whole = STORE.evidence_at(str(record.origin))
        assert whole is not None
        for digest in whole.digests:
            schemes.add(digest.scheme)
            found = {row.origin for row in every(EvidenceFilter(digest=digest.value), limit=500)}
            bare = digest.value.removeprefix("sha256:")
            held = {other.origin for other in EVIDENCE if bare.encode() in (other.value or b"")}
            assert record.origin in found
            assert found <= held
    assert {
        "assay.v1",
        "assay.schema_hash",
        "full",
        "catalogue",
        "args_hash",
        "result_hash",
        "trace_id",
        "id",
    } <= schemes


@pytest.mark.parametrize("form", ["{}", "sha256:{}", " {} ", "SHA"])
def test_a_digest_is_taken_in_any_form(form: str) -> None:
    """With ``sha256:`` or without, in capitals or not."""
    bare = data_of(EVIDENCE[3])["args_hash"].removeprefix("sha256:")
    asked = bare.upper() if form == "SHA" else form.format(bare)
    assert EVIDENCE[3].origin in {row.origin for row in every(EvidenceFilter(digest=asked))}


@pytest.mark.parametrize("collide", [False, True])
def test_pages_of_a_digest_are_in_order_wherever_its_calls_are_indexed(
    monkeypatch: pytest.MonkeyPatch, *, collide: bool
) -> None:
    """In parts that overlap in time, twice in one record, and among records whose digests have the same hash."""
    monkeypatch.setattr(calls, "STORE_ERA_RECORDS", 4 if collide else 16)
    if collide:
        for module in (calls, calls_queries):
            monkeypatch.setattr(module, "mark_hasher", lambda _: lambda _: bytes(6))
    records, times = [], random.Random(7).sample(range(60), 60)
    for number, minute in enumerate(times):
        event = orjson.loads(EVIDENCE[number % len(EVIDENCE)].value or b"")
        event["id"], event["time"] = f"call-{number}", f"2026-03-01T10:{minute:02}:00Z"
        digests = {"args_hash": "a" * 64, "result_hash": f"sha256:{'a' * 64}"} if number % 3 else {}
        event["data"] |= digests
        records.append(Record(Role.EVIDENCE, Origin("other", 0, number), b"", orjson.dumps(event)))
    rows = every(EvidenceFilter(digest="a" * 64), load(records), limit=8)
    minutes = {offset: minute for offset, minute in enumerate(times) if offset % 3}
    assert [row.origin.offset for row in rows] == sorted(minutes, key=lambda offset: -minutes[offset])


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize(
    "wanted", [{"tool_name": "tool_1"}, {"agent_id": "agent-1", "server_id": "server-1"}, {"digest": "b" * 64}]
)
def test_a_call_dated_ahead_in_every_part_changes_no_page(
    wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch, *, collide: bool
) -> None:
    """Parts then overlap in time all through, and pages are what they were; names that share a number, too."""
    monkeypatch.setattr(calls, "STORE_ERA_RECORDS", 4)
    if collide:
        for module in (calls, calls_queries):
            monkeypatch.setattr(module, "name_code", lambda _: 1)
    records, minutes = [], {}
    for number in range(120):
        event, minute = orjson.loads(EVIDENCE[0].value or b""), 59 if number % 4 == 0 else number % 59
        event["id"], event["time"] = f"call-{number}", f"2026-03-01T10:{minute:02}:{number % 60:02}Z"
        names = {"tool": f"tool_{number % 3}", "server_id": f"server-{number % 2}"}
        event["data"] |= names | {"actor": {"agent_id": f"agent-{number % 3}"}, "policy_digest": "ab"[number % 2] * 64}
        records.append(Record(Role.EVIDENCE, Origin("other", 0, number), b"", orjson.dumps(event)))
        if number % 3 == 1 if "tool_name" in wanted else number % (2 if "digest" in wanted else 6) == 1:
            minutes[number] = minute, number % 60, number
    rows = every(EvidenceFilter(**wanted), load(records), limit=7)
    assert [row.origin.offset for row in rows] == sorted(minutes, key=lambda offset: minutes[offset], reverse=True)


def test_digests_that_look_alike_are_different() -> None:
    """One digit makes another digest, however much of it is the same."""
    bare = data_of(EVIDENCE[3])["args_hash"].removeprefix("sha256:")
    other = ("1" if bare[0] == "0" else "0") + bare[1:]
    assert every(EvidenceFilter(digest=other)) == []
    assert every(EvidenceFilter(digest=bare[:40])) == []


@pytest.mark.parametrize("sought_max", [0, STORE_SUBJECTS_SOUGHT_MAX])
def test_a_digest_and_a_server_narrow_each_other(monkeypatch: pytest.MonkeyPatch, sought_max: int) -> None:
    """Filters apply to what a digest finds."""
    monkeypatch.setattr(calls_queries, "STORE_SUBJECTS_SOUGHT_MAX", sought_max)
    policy = data_of(EVIDENCE[0])["policy_digest"]
    rows = every(EvidenceFilter(digest=policy, server_id="server-1"))
    assert sorted(row.origin for row in rows) == sorted(one.origin for one in expected(server_id="server-1"))


def test_places_name_every_kind_of_place() -> None:
    """A definition's digest stands in calls, facts, lists and alerts; each says with which role."""
    full = next(digest.value for row in every(EvidenceFilter()) for digest in row.digests if digest.scheme == "full")
    found = STORE.places(full)
    assert {"tool", "definition", "calls"} <= {place.place for place in found}
    assert all(place.digest.scheme and place.digest.role for place in found)
    assert all(place.server_id and place.tool_name for place in found if place.place == "tool")
    calls = sum(place.calls for place in found if place.place == "calls")
    assert calls == len(every(EvidenceFilter(digest=full)))
    [own] = STORE.places(orjson.loads(EVIDENCE[0].value or b"")["id"])
    assert (own.place, own.digest.role) == ("evidence", "evidence")
    assert STORE.places("0" * 63 + "1") != ()
    assert STORE.places("nothing") == ()


def test_a_page_is_bounded() -> None:
    assert len(STORE.evidence(EvidenceFilter(), Paging(limit=-5)).rows) == 1
    many = STORE.evidence(EvidenceFilter(), Paging(limit=10**9))
    assert len(many.rows) <= STORE_PAGE_ROWS_MAX


@pytest.mark.parametrize("cursor", ["", "x", "W10=", "WyJhIiwiYiJd", "é", "A" * 10**6])
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(InputError, match="bad_cursor"):
        STORE.evidence(EvidenceFilter(), Paging(after=cursor))


@pytest.mark.parametrize("reference", ["", "x", "-1", "99", "1" * 100, "²"])
def test_a_reference_that_is_none_finds_nothing(reference: str) -> None:
    assert STORE.evidence_of(reference) is None or reference == "99"


def test_tools_say_what_was_listed_and_pinned() -> None:
    """Versions, pins and calls of each tool; pages go on across servers."""
    page = STORE.tools(now_us=NOW_US, paging=Paging(limit=2))
    rows = [*page.rows]
    while page.following is not None:
        page = STORE.tools(now_us=NOW_US, paging=Paging(limit=2, after=page.following))
        rows += page.rows
    assert [(row.server_id, row.tool_name) for row in rows] == [
        (f"server-{s}", f"tool_{t}") for s in range(3) for t in range(3)
    ]
    by_name = {(row.server_id, row.tool_name): row for row in rows}
    assert by_name["server-0", "tool_1"].pin_status == "mismatch"
    assert by_name["server-0", "tool_2"].pin_status == "unpinned"
    assert all(row.is_listed for row in rows)
    assert sum(row.calls for row in rows) == sum(row.calls_day for row in rows) == len(EVIDENCE)
    for row in rows:
        assert row.versions == len(STORE.versions(row.server_id, row.tool_name).rows)
        assert STORE.tool(row.server_id, row.tool_name, now_us=NOW_US) == row
    assert STORE.tool("server-0", "nothing", now_us=NOW_US) is None
    assert STORE.server("nobody", now_us=NOW_US) is None


def test_calls_of_a_day_are_those_before_the_time_asked_about() -> None:
    rows = STORE.servers(now_us=NOW_US + 2 * 86_400_000_000).rows
    assert {row.calls_day for row in rows} == {0}


def test_observers_are_who_listed_or_reported() -> None:
    rows = STORE.observers(now_us=NOW_US).rows
    assert [row.observer_id for row in rows] == ["observer-0", "observer-1"]
    assert sum(row.calls for row in rows) == len(EVIDENCE)
    assert {row.servers for row in rows} == {3}


def test_alerts_are_those_that_a_reading_of_the_topic_gives() -> None:
    """The same rows as ``alerts list`` makes of the alert topic, in its order."""
    views = [view_of(read_alert(record.value)) for record in of_role(history(), Role.ALERTS)]
    latest = {view.uid: row_of(view) for view in views}
    page = STORE.alerts(AlertFilter(state=None), Paging(limit=3))
    rows = [*page.rows]
    while page.following is not None:
        page = STORE.alerts(AlertFilter(state=None), Paging(limit=3, after=page.following))
        rows += page.rows
    assert {row.uid: row for row in rows} == latest
    order = [(-row.severity_id, -row.last_seen_ms, row.uid) for row in rows]
    assert order == sorted(order)
    history_of = STORE.alert(rows[0].uid[:12])
    assert history_of.row == rows[0]
    assert history_of.records[-1]["finding_info"]["uid"] == rows[0].uid


def test_alerts_are_filtered_by_what_they_are_about() -> None:
    """Severity, state, server, tool, kind, and whether somebody looks after them."""
    rows = STORE.alerts(AlertFilter(state=None), Paging(limit=1_000)).rows
    low = AlertFilter(state=None, selection=AlertSelection(severity=SeverityLevel.MEDIUM))
    assert set(STORE.alerts(low).rows) == {row for row in rows if row.severity_id >= 3}
    assert {row.state for row in STORE.alerts().rows} == {ReviewState.OPEN}
    unreviewed = STORE.alerts(AlertFilter(is_unreviewed=True)).rows
    assert set(unreviewed) == {row for row in rows if row.state is ReviewState.OPEN and not row.assigned_to}
    tool = STORE.alerts(AlertFilter(state=None, tool_name="tool_*")).rows
    assert {row.tool_name for row in tool} <= {f"tool_{number}" for number in range(3)}
    assert STORE.alerts(AlertFilter(kind="no_such_kind")).rows == ()
    assert sum(STORE.alert_counts().values()) == len(rows)
    assert STORE.alert_states(AlertFilter()) == Counter(row.state for row in rows)
    assert STORE.alert_states(AlertFilter(tool_name="tool_*")) == Counter(row.state for row in tool)
    assert STORE.alert_uids() == sorted(row.uid for row in rows)
    for wanted in (AlertFilter(), low, AlertFilter(tool_name="tool_1"), AlertFilter(kind="no_such_kind")):
        assert [row for row in rows if wanted.fits(row)] == list(STORE.alerts(wanted, Paging(limit=1_000)).rows)


@pytest.mark.parametrize(("prefix", "code"), [("zz", "bad_uid"), ("0" * 64, "unknown_uid"), ("x' OR 1=1", "bad_uid")])
def test_an_alert_that_is_not_there_is_an_error(prefix: str, code: str) -> None:
    """With the code that ``alerts show`` gives."""
    with pytest.raises(InputError, match=code):
        STORE.alert(prefix)


def test_the_beginning_that_two_uids_have_decides_nothing() -> None:
    """A decision on the wrong alert would be worse than none: both are named."""
    alerts = [changed_alert(), changed_alert()]
    uids = [f"abcdef{end * 58}" for end in "12"]
    for alert, uid in zip(alerts, uids, strict=True):
        alert["finding_info"]["uid"] = uid
    store = load(Record(Role.ALERTS, Origin("alerts", 0, n), b"", orjson.dumps(each)) for n, each in enumerate(alerts))
    with raises_code("ambiguous_uid", match="abcdef1111111111, abcdef2222222222"):
        store.alert("ABCDEF")
    assert store.alert("abcdef2").row.uid == uids[1]


def test_definitions_are_found_by_any_digest() -> None:
    """The definition itself comes with its digest under every scheme."""
    row = STORE.tools(now_us=NOW_US).rows[0]
    for digest in row.digests:
        if digest.scheme != "mcptrust.risk_level":
            assert row.full_digests[0] in {found.full_digest for found in STORE.definitions(digest.value)}
    found = STORE.definition(row.full_digests[0])
    assert found is not None
    assert found.definition["name"] == row.tool_name
    assert STORE.definition("nothing") is None


@pytest.mark.parametrize("content", [{"full_digest": "x"}, {"definition": "text"}, ["definition"]])
def test_a_record_in_a_definitions_place_is_an_error(content: object) -> None:
    """Whoever made the store, it is an error of ours that says what to do."""
    store = load(history())
    full = store.tools(now_us=NOW_US).rows[0].full_digests[0]
    store.connection.execute("UPDATE definition SET body = ?", (compressed(orjson.dumps(content)),))
    with pytest.raises(InputError, match=r"store_unreadable.*store run --rebuild --store"):
        store.definition(full)


def test_decisions_say_who_and_why() -> None:
    """The control record's own time, author and reason."""
    [decision] = STORE.decisions(server_id="server-0").rows
    assert (decision.author, decision.reason, decision.tool_name) == ("ann", "review", "tool_1")
    assert decision.scheme == "assay.v1"
    assert STORE.decisions(author="ann").rows == (decision,)
    assert STORE.decisions(server_id="server-1").rows == ()
    assert STORE.decisions(since_us=decision.time_us + 1).rows == ()
    assert STORE.places(str(decision.value))[0].digest.scheme == "assay.v1"


def test_status_says_what_is_here() -> None:
    status = STORE.status()
    assert status.counts["evidence"] == len(EVIDENCE)
    assert (status.complete_since_us, status.dropped) == (None, 0)
    times = [row.time_us for row in every(EvidenceFilter())]
    assert (status.oldest_us, status.newest_us) == (min(times), max(times))
    assert status.positions[0]._replace(end=None).lag is None


@pytest.mark.parametrize(
    "ask",
    [
        lambda: STORE.evidence(EvidenceFilter(server_id="\udcff")),
        lambda: STORE.evidence(EvidenceFilter(digest="\udcff")),
        lambda: STORE.places("\udcff"),
        lambda: STORE.definition("\udcff"),
        lambda: STORE.tool("server-0", "\udcff", now_us=NOW_US),
        lambda: STORE.decisions(author="\udcff"),
        lambda: STORE.decisions(since_us=2**63),
    ],
)
def test_what_no_record_can_hold_is_an_error(ask: Callable[[], object]) -> None:
    """Bytes of a terminal that are no text, numbers over 64 bits."""
    with pytest.raises(InputError, match="bad_filter"):
        ask()


def test_a_forged_cursor_with_a_huge_number_is_an_error() -> None:
    with pytest.raises(InputError, match="bad_cursor"):
        STORE.evidence(EvidenceFilter(), Paging(after=cursor_of(2**64 - 1, 1)))


def test_nothing_hides_behind_an_empty_name() -> None:
    """Tools, servers and observers without a name are listed as others are, each once over all pages."""
    content = orjson.loads(EVIDENCE[0].value or b"")
    content["data"] |= {"tool": "", "server_id": "", "observer_id": ""}
    store = load([*EVIDENCE[1:], EVIDENCE[0]._replace(value=orjson.dumps(content), origin=Origin("other", 0, 0))])
    questions: dict[str, Callable[..., Any]] = {
        "tool_name": store.tools,
        "server_id": store.servers,
        "observer_id": store.observers,
    }
    for name, question in questions.items():
        whole = question(now_us=NOW_US).rows
        assert getattr(whole[0], name) == ""
        page = question(now_us=NOW_US, paging=Paging(limit=1))
        rows = [*page.rows]
        while page.following is not None:
            page = question(now_us=NOW_US, paging=Paging(limit=1, after=page.following))
            rows += page.rows
        assert tuple(rows) == whole


def test_a_prefix_finds_the_digests_that_begin_with_it() -> None:
    """With ``sha256:``, in capitals, or with the ellipsis of a table; each digest once, with its scheme."""
    full = next(digest.value for row in every(EvidenceFilter()) for digest in row.digests if digest.scheme == "full")
    bare = full.removeprefix("sha256:")
    for prefix in (bare[:12], bare[:12].upper(), f"sha256:{bare[:63]}", f" {bare[:12]}… "):
        [found] = STORE.candidates(prefix)
        assert found.digest.value == bare
        assert (found.digest.role, found.digest.scheme) != ("", "")


def test_only_a_prefix_has_candidates() -> None:
    """Not a whole digest, not too few digits, not other text, and no id that is here as it is."""
    full = next(digest.value for row in every(EvidenceFilter()) for digest in row.digests if digest.scheme == "full")
    own = orjson.loads(EVIDENCE[0].value or b"")["id"]
    for text in (full, full.removeprefix("sha256:")[:5], "no digest", own, "", "0123456%"):
        assert STORE.candidates(text) == ()


def test_a_call_whose_id_is_the_beginning_of_a_digest_does_not_hide_it() -> None:
    """Some callers choose the ids of their calls: what a digest identifies is still found."""
    first = orjson.loads(EVIDENCE[0].value or b"")
    full = first["data"]["binding"]["full_digest"]
    first["data"]["tool_call_id"] = prefix = full.removeprefix("sha256:")[:12]
    store = load([EVIDENCE[0]._replace(value=orjson.dumps(first)), *EVIDENCE[1:]])
    found = store.candidates(prefix)
    assert [(each.place, each.digest.value) for each in found] == [("evidence", prefix), ("calls", full[7:])]


def test_candidates_are_bounded() -> None:
    """However many digests begin alike: they are sought one by one, not sorted."""
    store = load(())
    values = [("abcdef" + f"{number:058x}", "tool", number, "tool_definition", "full") for number in range(500)]
    store.connection.executemany("INSERT INTO digest VALUES (?, ?, ?, ?, ?)", values)
    store.connection.executemany(
        "INSERT INTO tool_fact VALUES (?, 0, ?, 's', 'x', '{}', '{}')",
        [(number, b"%d" % number) for number in range(500)],
    )
    found = store.candidates("abcdef")
    assert [each.digest.value for each in found] == [value[0] for value in values[:STORE_CANDIDATES_MAX]]


def test_the_agents_of_a_tool_s_calls_are_counted_with_the_first_call_of_each() -> None:
    row = STORE.evidence(EvidenceFilter()).rows[0]
    found = STORE.calls_since(row.server_id, [row.tool_name], full_digest=None, since_ms=0)
    rows = STORE.evidence(EvidenceFilter(server_id=row.server_id, tool_name=row.tool_name), Paging(limit=1_000)).rows
    counts = Counter(each.agent_id for each in rows)
    assert {agent.agent_id: agent.calls for agent in found.agents} == counts
    assert sum(agent.calls for agent in found.agents) == found.used
    for agent in found.agents:
        assert agent.first_ms == min(each.time_us for each in rows if each.agent_id == agent.agent_id) // 1_000


def test_of_many_agents_the_first_are_named_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_queries, "AGENTS_NAMED_MAX", 2)
    rows = STORE.evidence(EvidenceFilter(server_id="server-0", tool_name="tool_1"), Paging(limit=1_000)).rows
    full = next(digest.value for digest in rows[0].digests if digest.scheme == "full")
    counts = Counter(each.agent_id for each in rows if full in {digest.value for digest in each.digests})
    assert len(counts) > 2
    found = STORE.calls_since("server-0", ["tool_1"], full_digest=full, since_ms=0)
    assert (found.used, found.other) == (counts.total(), len(rows) - counts.total())
    assert found.agents_count == len(counts)
    assert [agent.calls for agent in found.agents] == [calls for _, calls in counts.most_common(2)]


@pytest.mark.parametrize("tool_name", ["tool_1", "nothing"])
def test_calls_that_nobody_made_are_none(tool_name: str) -> None:
    """Of a definition that no call used, and of a tool that nobody called."""
    rows = STORE.evidence(EvidenceFilter(server_id="server-0", tool_name=tool_name), Paging(limit=1_000)).rows
    found = STORE.calls_since("server-0", [tool_name], full_digest="sha256:none", since_ms=0)
    assert (found.used, found.other, found.agents, found.agents_count) == (0, len(rows), (), 0)
