"""Laws of the peers' digests and of files of pins: order means nothing, and what is written is read back."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import yaml
from hypothesis import given, strategies as st

from assay_stream.canonical.digest import Canonicalized, canonicalize
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.schemes import hangar, mcptrust_hashes as mcptrust, pin_files
from assay_stream.schemes.fingerprint import SCHEME_NAMES, PinEntry
from assay_stream.schemes.mcptrust_lockfile import (
    LockfileStamp,
    check_result,
    drift,
    lock,
    new_lockfile,
    read_lockfile,
    write_lockfile,
)
from assay_stream.schemes.pin_files import PinFormat, read_pins, write_pins

DIGESTS: dict[str, Callable[[Any], Any]] = {
    "hangar.v1_2": hangar.digest_v1_2,
    "hangar.v2": hangar.digest_v2,
    "mcptrust.description_hash": mcptrust.description_hash,
    "mcptrust.input_schema_hash": mcptrust.input_schema_hash,
    "mcptrust.risk_level": mcptrust.risk_level,
    "mcptrust.v1": mcptrust.go_canonical,
}
FORMATS: tuple[PinFormat, ...] = ("mcptrust", "hangar", "assay", "native")

TEXTS = st.text(max_size=8) | st.sampled_from(
    ["", "rm", "exec", "<&>\u2028", "\U0001f600", "\uff3a", "null", "~", "a: b"]
)
NUMBERS = st.integers() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(TEXTS, children, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)
TOOLS = st.fixed_dictionaries(
    {"name": st.text(min_size=1, max_size=6)},
    optional={"description": TEXTS, "inputSchema": OBJECTS, "outputSchema": OBJECTS, "annotations": OBJECTS},
)
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(st.characters(), max_size=3)
    | st.binary(max_size=2)
    | st.integers(),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.text(st.characters(), max_size=2) | st.integers(), children, max_size=3)
    ),
    max_leaves=6,
)
ODD_TOOLS = st.dictionaries(
    st.sampled_from(["name", "description", "inputSchema", "outputSchema"]), ODD | OBJECTS, max_size=4
)
PROMPTS = st.fixed_dictionaries(
    {"name": TEXTS},
    optional={
        "description": TEXTS,
        "arguments": st.lists(st.fixed_dictionaries({"name": TEXTS}, optional={"required": st.booleans()}), max_size=3),
    },
)
TEMPLATES = st.fixed_dictionaries({"uriTemplate": TEXTS}, optional={"name": TEXTS, "mimeType": TEXTS})
MANIFESTS = st.fixed_dictionaries(
    {
        "tools": st.lists(TOOLS, max_size=4, unique_by=lambda tool: str(tool["name"])),
        "prompts": st.lists(PROMPTS, max_size=3, unique_by=lambda prompt: prompt["name"]),
        "resourceTemplates": st.lists(TEMPLATES, max_size=3, unique_by=lambda template: template["uriTemplate"]),
    }
)

NAMES = st.one_of(
    st.text(min_size=1, max_size=6).filter(lambda name: bool(name.strip())),
    st.sampled_from(["on", "1", "a b", "a: b", "- x", "<<", "null", "~", "'", "#", "\U0001f600", "a\x85b", "a\n"]),
)
HEX = st.text("0123456789abcdef", min_size=64, max_size=64) | st.text("0123456789", min_size=64, max_size=64)
BARE = ("assay.schema_hash", "assay.meta_hash", "schemapin.v1", "hangar.v1_2", "hangar.v2")


def _values(scheme: str) -> st.SearchStrategy[str]:
    if scheme == "mcptrust.risk_level":
        return st.sampled_from(["LOW", "MEDIUM", "HIGH"])
    printed = HEX if scheme in BARE else HEX.map(lambda digits: f"sha256:{digits}")
    return printed | st.just("") if scheme == "mcptrust.input_schema_hash" else printed


@st.composite
def _entries(draw: st.DrawFn) -> list[PinEntry]:
    tools = draw(st.lists(st.tuples(st.sampled_from([None, "s", "other"]) | NAMES, NAMES), max_size=4, unique=True))
    return [
        PinEntry(server_id, name, scheme, draw(_values(scheme)))
        for server_id, name in tools
        for scheme in draw(st.sets(st.sampled_from(SCHEME_NAMES)) | st.just(SCHEME_NAMES))
    ]


def _reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reordered(value[key]) for key in reversed(value)}
    return [_reordered(item) for item in value] if isinstance(value, list) else value


def _outcome(compute: Callable[[Any], Any], value: Any) -> Any:
    try:
        return compute(value)
    except InputError as error:
        return error.code


@given(TOOLS)
def test_key_order_changes_nothing(tool: dict[str, Any]) -> None:
    for name, compute in DIGESTS.items():
        assert _outcome(compute, tool) == _outcome(compute, _reordered(tool)), name


@given(TOOLS)
def test_a_form_that_is_known_already_changes_nothing(tool: dict[str, Any]) -> None:
    """Parts that keep their canonical form give what bare ones give."""
    known = {name: Canonicalized(value) if type(value) is dict else value for name, value in tool.items()}
    for name, compute in {**DIGESTS, "jcs": canonicalize}.items():
        assert _outcome(compute, known) == _outcome(compute, tool), name


@given(TOOLS, TOOLS)
def test_canonical_forms_are_json_of_the_same_value(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert _doubles(json.loads(mcptrust.go_canonical(one))) == _doubles(one)
    assert (mcptrust.go_canonical(one) == mcptrust.go_canonical(other)) <= (_doubles(one) == _doubles(other))


def _doubles(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_doubles(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@given(ODD_TOOLS)
def test_nothing_but_our_errors_escapes_from_digests(tool: dict[str, Any]) -> None:
    for compute in DIGESTS.values():
        _outcome(compute, tool)


@given(MANIFESTS)
def test_what_is_equal_does_not_drift(manifest: dict[str, Any]) -> None:
    """Nor does it after a lockfile, nor in another order."""
    lockfile = new_lockfile(lock(manifest), server="s", stamp=LockfileStamp("g", "2026-01-01T00:00:00Z"))
    read = read_lockfile(write_lockfile(lockfile))
    assert read.lock == lockfile.lock
    turned = {name: list(reversed(items)) for name, items in manifest.items()}
    assert drift(read.lock, turned) == ()


@given(MANIFESTS, MANIFESTS)
def test_drift_turns_round(before: dict[str, Any], after: dict[str, Any]) -> None:
    there, back = drift(lock(before), after), drift(lock(after), before)
    added = sorted((item.type.removesuffix("_ADDED"), item.identifier) for item in there if "_ADDED" in item.type)
    removed = sorted((item.type.removesuffix("_REMOVED"), item.identifier) for item in back if "_REMOVED" in item.type)
    assert added == removed
    found = check_result(there, server="s", lockfile="l")
    summary = found["summary"]
    assert summary["total"] == len(found["drift"]) == sum(summary.values()) - summary["total"]
    assert (found["outcome"] == "FAIL") == (summary["critical"] > 0)


@given(_entries(), st.sampled_from(FORMATS), st.sampled_from([None, "s"]))
def test_what_is_written_is_read_back(entries: list[PinEntry], kind: PinFormat, server_id: str | None) -> None:
    raw, left_out = write_pins(entries, format=kind, server_id=server_id)
    held = read_pins(raw, format=kind, server_id=server_id)
    assert sorted([*held, *left_out], key=str) == sorted(entries, key=str)
    assert write_pins(list(reversed(entries)), format=kind, server_id=server_id) == (raw, left_out)
    assert write_pins(held, format=kind, server_id=server_id) == (raw, [])


@given(_entries())
def test_our_own_form_leaves_nothing_out(entries: list[PinEntry]) -> None:
    """It holds every scheme, every name, and pins without a server."""
    assert write_pins(entries, format="native", server_id=None)[1] == []


@given(
    st.binary(max_size=40)
    | st.text(max_size=40).map(str.encode)
    | st.text("{}[]:,-\"'&*!|>%@#? \n\tab1~<", max_size=30).map(str.encode)
    | VALUES.map(lambda value: json.dumps(value).encode())
)
def test_nothing_but_our_errors_escapes_from_files(raw: bytes) -> None:
    for kind in FORMATS:
        _outcome(partial(read_pins, format=kind, server_id=None), raw)


@given(st.text("{}[]:,-\"'&*!|># \n\tab1~<", max_size=40))
def test_yaml_is_read_alike_with_and_without_libyaml(text: str) -> None:
    """What both parsers read they read alike."""
    outcomes = []
    kept = pin_files._LOADER
    try:
        for loader in (yaml.BaseLoader, kept):
            pin_files._LOADER = loader
            try:
                outcomes.append(pin_files.decode_yaml(text.encode(), limits=DEFAULT_LIMITS))
            except InputError:
                return
    finally:
        pin_files._LOADER = kept
    assert repr(outcomes[0]) == repr(outcomes[1])
