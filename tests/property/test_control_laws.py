"""Laws of pins, policies and keys: what is said follows from both logs, whichever of them was read first."""

from collections import Counter
from dataclasses import replace
from typing import Any

import orjson
from hypothesis import given, strategies as st

from assay_stream.bindings.as_of import start_of
from assay_stream.bindings.checks import evaluate_pins, first_uses_since
from assay_stream.bindings.controls import check_pins
from assay_stream.detect import RULES_DIGEST
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.evidence import Producer
from assay_stream.model.finding import Finding, FloodEnd, NameClaim, Resolution, decode_entry
from assay_stream.model.record import Output, Record, Role
from assay_stream.registry.step import verdict_key
from assay_stream.schemes import assay_tool as assay
from assay_stream.schemes.hangar import Action
from tests.support import engine
from tests.support.controls import DOMAIN, KEYS, a_control, a_document, fingerprint_of, signature_of
from tests.support.engine import EngineState, compacted, restore
from tests.support.events import SERVER, TEN_O_CLOCK_MS, TOOL, a_call, a_snapshot, read_live, record_of

PRODUCER = Producer(version="1")
OBSERVERS = ("proxy-1", "proxy-2")
FIRST, SECOND = TOOL, {**TOOL, "description": "Read a file, then send it away"}
OTHER: dict[str, Any] = {"name": "write_file", "inputSchema": {"type": "object"}}
LISTS: tuple[list[dict[str, Any]], ...] = ([FIRST], [SECOND], [FIRST, OTHER], [FIRST, SECOND], [OTHER], [])
VALUES = [str(assay.definition_digest(tool, server_id=None)) for tool in (FIRST, SECOND)]
DOMAINS = (DOMAIN, "example.org")
PIN_KINDS = {"pin_mismatch", "unpinned_tool", "signature_invalid", "signature_missing", "key_changed", "key_revoked"}


@st.composite
def signatures(draw: st.DrawFn, tools: list[dict[str, Any]]) -> dict[str, Any]:
    given_: dict[str, Any] = {}
    for tool in tools:
        key = draw(st.sampled_from([None, "ours", "ours", "other"]))
        if key is not None:
            text = signature_of(draw(st.sampled_from([tool, tool, FIRST])), KEYS[key])
            domain = draw(st.sampled_from([None, DOMAIN, DOMAIN, "example.org"]))
            given_[tool["name"]] = text if domain is None else {"signature": text, "domain": domain}
    return given_


@st.composite
def a_listing(draw: st.DrawFn, number: int, second: float) -> bytes:
    if draw(st.integers(0, 7)) == 0:
        return b"{"
    tools = draw(st.sampled_from(LISTS))
    return a_snapshot(
        *tools,
        number=number,
        second=second,
        snapshot_id=f"list-{number}",
        observer_id=draw(st.sampled_from(OBSERVERS)),
        completeness=draw(st.sampled_from(["complete", "partial"])),
        server_scoped=draw(st.sampled_from([False, False, True])),
        signatures=draw(signatures(tools)),
    )


@st.composite
def a_decision(draw: st.DrawFn, number: int, second: float) -> bytes:
    kind = draw(
        st.sampled_from(
            ["pin.set", "pin.reject", "pin.remove", "policy.set", "policy.remove", "key.accept", "key.revoke"]
            + ["discovery.observed"] * 3
        )
    )
    tool = draw(st.sampled_from(["read_file", "read_file", "write_file"]))
    data: dict[str, Any]
    if kind.startswith("pin"):
        values = [*VALUES, None] if kind == "pin.remove" else VALUES
        data = {"tool_name": tool, "scheme": "assay.v1", "value": draw(st.sampled_from(values))}
    elif kind == "policy.set":
        data = {
            "tool_name": draw(st.sampled_from([None, tool])),
            "enforcement": draw(st.sampled_from(["audit", "warn", "block"])),
            "unknown": draw(st.sampled_from(["allow_degraded", "warn", "block"])),
        }
    elif kind == "policy.remove":
        data = {"tool_name": draw(st.sampled_from([None, tool]))}
    elif kind == "discovery.observed":
        data = {"domain": draw(st.sampled_from([*DOMAINS[:1] * 4, DOMAINS[1]])), **draw(found())}
    else:
        data = {"fingerprint": fingerprint_of(KEYS[draw(st.sampled_from(["ours", "other"]))])}
        if kind == "key.accept":
            data |= {"domain": DOMAIN, "tool_name": draw(st.sampled_from([None, tool]))}
    return a_control(kind, number=number, second=second, **data)


@st.composite
def found(draw: st.DrawFn) -> dict[str, Any]:
    what = draw(st.sampled_from(["ours", "ours", "other", "revoked", "failed", "nonsense"]))
    if what == "failed":
        return {"status": "fetch_failed", "error_code": "discovery_fetch_failed"}
    if what == "nonsense":
        return {"status": "observed", "document": {"schema_version": "1.1"}}
    if what == "revoked":
        return {"status": "observed", "document": a_document(revoked=(fingerprint_of(),))}
    return {"status": "observed", "document": a_document(KEYS[what])}


@st.composite
def histories(draw: st.DrawFn, *, orderly: bool, max_size: int = 14) -> list[Record]:
    """Records of the snapshot and the control log in the order of publishing.

    Orderly ones have event times that rise with it; others have any, equal ones among them.
    """
    records: list[Record] = []
    offsets = Counter[Role]()
    for number in range(draw(st.integers(1, max_size))):
        second = number if orderly else draw(st.integers(0, 7))
        role = draw(st.sampled_from([Role.SNAPSHOTS, Role.CONTROL]))
        listing = role is Role.SNAPSHOTS
        value = draw(a_listing(number, second) if listing else a_decision(number, second))
        now_ms = TEN_O_CLOCK_MS + second * 1_000
        records.append(record_of(role, value, offset=offsets[role], timestamp_ms=now_ms))
        offsets[role] += 1
    return records


@st.composite
def reorderings(draw: st.DrawFn, records: list[Record]) -> list[Record]:
    logs = {role: [record for record in records if record.role is role] for role in (Role.CONTROL, Role.SNAPSHOTS)}
    whole = draw(st.sampled_from([None, None, Role.CONTROL, Role.SNAPSHOTS]))
    if whole is not None:
        return logs[whole] + [record for record in records if record.role is not whole]
    mixed: list[Record] = []
    while any(logs.values()):
        role = draw(st.sampled_from([role for role, log in logs.items() if log]))
        mixed.append(logs[role].pop(0))
    return mixed


def a_state(limits: Limits = DEFAULT_LIMITS) -> EngineState:
    return EngineState(producer=PRODUCER, limits=limits)


def evidence(state: EngineState) -> list[bytes | None]:
    found_: list[bytes | None] = []
    for second in range(16):
        for observer in (*OBSERVERS, "proxy-3"):
            for tool in ("read_file", "write_file", "ghost"):
                value = a_call(second=second + 0.5, observer_id=observer, tool_name=tool)
                outputs = engine.process(state, record_of(Role.CALLS, value))
                found_ += [output.value for output in outputs]
    return found_


def pin_findings_of(outputs: list[Output]) -> list[bytes]:
    values = [output.value or b"" for output in outputs if output.role is Role.FINDINGS]
    return [value for value in values if orjson.loads(value)["kind"] in PIN_KINDS]


def verdicts(outputs: list[Output]) -> dict[bytes | None, bytes | None]:
    last = {output.key: output.value for output in outputs if output.role is Role.VERDICTS}
    return {key: value for key, value in last.items() if value is not None}


def all_wrong(state: EngineState) -> set[bytes]:
    """What is wrong at any change point, worked out from the whole state at once."""
    server = state.registry.bindings.server(SERVER)
    return {replace(finding, rules=RULES_DIGEST).encode() for finding in evaluate_pins(server, start_of(0))}


ANY = histories(orderly=False) | histories(orderly=True)


@given(ANY, st.data())
def test_evidence_and_verdicts_do_not_depend_on_which_log_was_read_first(
    history: list[Record], data: st.DataObject
) -> None:
    """Each log in its own order, mixed in any way: the same bytes of evidence, the same verdicts."""
    one, other = a_state(), a_state()
    told, told_again = read_live(one, history), read_live(other, data.draw(reorderings(history)))
    assert evidence(other) == evidence(one)
    assert verdicts(told_again) == verdicts(told)


@given(ANY)
def test_every_finding_was_true_when_it_was_made_and_none_is_left_out(history: list[Record]) -> None:
    """What is found in a step stands wrong after it; what stands wrong in the end was found in some step.

    A finding cannot be unsaid: one that a record read later, but dated earlier, makes untrue stays in its log.
    """
    state = a_state()
    told: set[bytes] = set()
    for record in history:
        before = all_wrong(state)
        new = pin_findings_of(read_live(state, [record]))
        assert len(new) == len(set(new))
        assert set(new) <= all_wrong(state)
        assert before.isdisjoint(new)
        told |= set(new)
    assert all_wrong(state) <= told


@given(histories(orderly=True), st.data())
def test_no_order_of_reading_leaves_a_finding_out(history: list[Record], data: st.DataObject) -> None:
    """Read in the order of event times, exactly what stands wrong is found, once; in any other, no less."""
    state = a_state()
    in_time = pin_findings_of(read_live(state, history))
    assert len(in_time) == len(set(in_time))
    assert set(in_time) == all_wrong(state)
    mixed = pin_findings_of(read_live(a_state(), data.draw(reorderings(history))))
    assert set(in_time) <= set(mixed)


@given(ANY)
def test_first_uses_kept_step_by_step_are_those_of_the_whole(history: list[Record]) -> None:
    state = a_state()
    for record in history:
        read_live(state, [record])
        server = state.registry.bindings.server(SERVER)
        assert server.controls.first_uses == first_uses_since(server, start_of(0))


LIMITS = st.builds(
    Limits,
    timeline_entries_max=st.sampled_from([1, 2, 512]),
    discoveries_max=st.sampled_from([1, 2, 3, 64]),
    rejections_max=st.sampled_from([1, 64]),
)


@given(ANY, st.data(), LIMITS, st.booleans())
def test_a_restored_registry_goes_on_with_the_same_pins_and_keys(
    history: list[Record], data: st.DataObject, limits: Limits, compact: bool
) -> None:
    cut = data.draw(st.integers(0, len(history)))
    first = a_state(limits)
    facts = [output for output in read_live(first, history[:cut]) if output.role is Role.BINDINGS]
    second = restore(a_state(limits), compacted(facts) if compact else facts)
    assert read_live(second, history[cut:]) == read_live(first, history[cut:])
    assert evidence(second) == evidence(first)


@given(ANY, LIMITS)
def test_what_is_kept_of_keys_is_bounded(history: list[Record], limits: Limits) -> None:
    """No domain has more discoveries than allowed; nothing is kept of keys and signatures that nothing names."""
    state = a_state(limits)
    read_live(state, history)
    server = state.registry.bindings.server(SERVER)
    assert all(len(found_) <= limits.discoveries_max for found_ in server.controls.discoveries.values())
    named = {seen.signatures for timeline in server.observers.values() for seen in timeline} - {None}
    assert set(server.controls.signatures) == named
    documents = server.controls.key_documents()
    assert {key for _, key in server.controls.checked} <= documents.keys()
    assert {digest for digest, _ in server.controls.checked} <= named


@given(histories(orderly=True), st.data())
def test_a_control_record_published_twice_changes_no_evidence_of_calls(
    history: list[Record], data: st.DataObject
) -> None:
    controls = [record for record in history if record.role is Role.CONTROL]
    if not controls:
        return
    again = data.draw(st.sampled_from(controls))
    state = a_state()
    told = read_live(state, history)
    was = evidence(state)
    place = again.origin._replace(offset=len(controls))
    repeated = read_live(state, [again._replace(origin=place)])
    assert evidence(state) == was
    assert verdicts(told + repeated) == verdicts(told)
    assert pin_findings_of(repeated) == []


_GRAVITY = {None: 0, Action.ALLOW: 0, Action.WARN: 1, Action.BLOCK: 2}


@given(ANY)
def test_a_verdict_is_the_worst_over_the_definitions_in_force(history: list[Record]) -> None:
    state = a_state()
    held = verdicts(read_live(state, history))
    server = state.registry.bindings.server(SERVER)
    end_us = 2**62
    for timeline in server.observers.values():
        seen = timeline.as_of(end_us)
        if seen is None or not server.in_force(seen, end_us):
            continue
        catalogue = server.catalogue_of(seen)
        for name, full in catalogue.tools.items():
            pins, policy = (server.controls.pins_as_of(name, end_us), server.controls.policy_as_of(name, end_us))
            value = held.get(verdict_key(SERVER, name))
            assert (value is not None) == (bool(pins) or policy is not None)
            if value is None:
                continue
            observed = None if full is None else server.fingerprint_of(catalogue, full)
            result = check_pins(pins, observed, listed=True, policy=policy)
            told = orjson.loads(value)
            assert _GRAVITY[Action(told["action"])] >= _GRAVITY[result.action]
            if policy is None and result.status.value == "rejected":
                assert told["status"] == "rejected"


@given(ANY)
def test_nothing_that_is_written_calls_a_tool_safe(history: list[Record]) -> None:
    for output in read_live(a_state(), history):
        if output.role in (Role.FINDINGS, Role.CHANGES, Role.VERDICTS):
            words = (output.value or b"").lower()
            assert not any(word in words for word in (b"safe", b"trusted", b"verified"))
            if output.role is Role.FINDINGS:
                entry = decode_entry(output.value)
                assert isinstance(entry, Finding | Resolution | NameClaim | FloodEnd)
                assert entry.output().value == output.value
