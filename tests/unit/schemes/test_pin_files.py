"""Files of pins: each format's real shapes, what a format cannot hold, and bad input."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from assay_stream.canonical.decode import Members
from assay_stream.errors import InputError
from assay_stream.limits import PIN_FILE_LIMITS, Limits
from assay_stream.schemes import pin_files
from assay_stream.schemes.fingerprint import PinEntry, check_value, fingerprint
from assay_stream.schemes.mcptrust_lockfile import LockfileStamp
from assay_stream.schemes.pin_files import PinFormat, decode_json_or_yaml, decode_yaml, read_pins, write_pins
from tests.support.errors import raises_code

A, B = "a" * 64, "b" * 64
LOCKED = [
    PinEntry("s", "t", "mcptrust.description_hash", f"sha256:{A}"),
    PinEntry("s", "t", "mcptrust.input_schema_hash", ""),
    PinEntry("s", "t", "mcptrust.risk_level", "HIGH"),
]
IDENTITY = [PinEntry("s", "t", "assay.schema_hash", A), PinEntry("s", "t", "assay.meta_hash", B)]
HANGAR = PinEntry("s", "t", "hangar.v2", A)
FORMATS: tuple[PinFormat, ...] = ("mcptrust", "hangar", "assay", "native")


def _refused(raw: bytes, kind: PinFormat) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        read_pins(raw, format=kind, server_id=None)
    return caught.value.code, caught.value.path


def _line(**members: Any) -> bytes:
    return json.dumps({"server_id": "s", "tool_name": "t", "scheme": "hangar.v2", "value": A} | members).encode()


class TestMcptrust:
    def test_a_tool_needs_all_three(self) -> None:
        """A lockfile with half a tool would report drift that is none."""
        raw, left_out = write_pins([*LOCKED[:2], HANGAR], format="mcptrust", server_id="s")
        assert json.loads(raw) == {"version": "2.0", "server_command": "s", "tools": {}}
        assert left_out == [HANGAR, *LOCKED[:2]]

    @pytest.mark.parametrize(
        "head", [{"version": "2.0", "server_command": "npx s"}, {"lockFileVersion": "3.0", "server": {"name": "n"}}]
    )
    def test_each_tool_gives_three_pins(self, head: dict[str, Any]) -> None:
        """Of the server that the reader was told: the file's own name for it is the server's word."""
        tool = {"description_hash": f"sha256:{A}", "input_schema_hash": "", "risk_level": "HIGH"}
        raw = json.dumps(head | {"tools": {"t": tool}}).encode()
        assert read_pins(raw, format="mcptrust", server_id="s") == LOCKED
        assert {pin.server_id for pin in read_pins(raw, format="mcptrust", server_id=None)} == {None}

    def test_version_3_is_written_where_it_is_asked_for(self) -> None:
        stamp = LockfileStamp("assay-stream/0", "2026-01-01T00:00:00Z")
        raw, left_out = write_pins(LOCKED, format="mcptrust", server_id="s", lockfile_stamp=stamp)
        document = json.loads(raw)
        assert (document["lockFileVersion"], document["server"]) == ("3.0", {"name": "s"})
        assert document["meta"] == {"generator": "assay-stream/0", "updatedAt": "2026-01-01T00:00:00Z"}
        assert left_out == []
        assert read_pins(raw, format="mcptrust", server_id="s") == LOCKED

    def test_it_is_of_one_server(self) -> None:
        others = [pin._replace(server_id="other") for pin in LOCKED]
        raw, left_out = write_pins([*LOCKED, *others], format="mcptrust", server_id="s")
        assert list(json.loads(raw)["tools"]) == ["t"]
        assert left_out == others
        assert write_pins(LOCKED, format="mcptrust", server_id=None)[1] == LOCKED


class TestHangar:
    @pytest.mark.parametrize(
        "text",
        [
            f"mcp_servers:\n  s:\n    tool_projection:\n      pins:\n        t: {A}\n  bare: {{}}\n",
            f"s:\n  t: {A}\n",
            json.dumps({"digests": {"s": {"t": A}}, "unreachable": {"x": "timeout"}}),
            json.dumps({"mcp_servers": {"s": {"tool_projection": {"pins": {"t": A}}}, "x": None}}),
        ],
    )
    def test_its_shapes(self, text: str) -> None:
        assert read_pins(text.encode(), format="hangar", server_id=None) == [HANGAR]

    def test_it_is_written_as_configuration(self) -> None:
        raw, left_out = write_pins([HANGAR, HANGAR._replace(server_id=None)], format="hangar", server_id=None)
        assert raw.decode() == f"mcp_servers:\n  s:\n    tool_projection:\n      pins:\n        t: {A}\n"
        assert left_out == [HANGAR._replace(server_id=None)]

    @pytest.mark.parametrize(
        "name", ["0\x85", "\x85", "a\u2028b", "zażółć", "\U0001f600", "a\nb", "x" * 300, "<<", "~"]
    )
    def test_any_name_is_read_back(self, name: str) -> None:
        """Line ends of all kinds, words that mean something to YAML, and long names."""
        pin = HANGAR._replace(tool_name=f"t{name}t" if not name.strip() else name)
        raw, left_out = write_pins([pin], format="hangar", server_id=None)
        assert left_out == []
        assert read_pins(raw, format="hangar", server_id=None) == [pin]

    @pytest.mark.parametrize("digits", ["1" * 64, "0" * 64, "7" * 63 + "e"])
    def test_a_digest_that_looks_like_a_number_stays_one(self, digits: str) -> None:
        assert read_pins(f"s: {{t: {digits}}}".encode(), format="hangar", server_id=None)[0].value == digits

    def test_what_pins_are_bound_to_survives(self) -> None:
        """Hangar 2.34 binds the pins of a server to the upstream that they were read from."""
        projection = {"pins": {"t": A}, "upstream": "http:https://tools.example.com/mcp"}
        raw = json.dumps({"mcp_servers": {"s": {"tool_projection": projection}}}).encode()
        pins = read_pins(raw, format="hangar", server_id=None)
        assert pins == [HANGAR._replace(upstream="http:https://tools.example.com/mcp")]
        for kind in ("hangar", "native"):
            written, left_out = write_pins(pins, format=kind, server_id=None)
            assert left_out == []
            assert read_pins(written, format=kind, server_id=None) == pins

    @pytest.mark.parametrize("upstream", [None, "elsewhere"])
    def test_no_pin_comes_to_be_bound_to_anothers_upstream(self, upstream: str | None) -> None:
        """A server's pins have one binding in Hangar's file; a pin that has another is named as left out."""
        bound = HANGAR._replace(upstream="a")
        other = HANGAR._replace(tool_name="u", upstream=upstream)
        raw, left_out = write_pins([bound, other], format="hangar", server_id=None)
        assert left_out == [other]
        assert read_pins(raw, format="hangar", server_id=None) == [bound]

    def test_pins_of_tenants_are_not_dropped_silently(self) -> None:
        """A pin here holds for every caller, so the file is refused."""
        overrides = {"acme": {"pins": {"t": A}}}
        document = {"mcp_servers": {"s": {"tool_projection": {"pins": {"t": A}, "tenant_overrides": overrides}}}}
        found = _refused(json.dumps(document).encode(), "hangar")
        assert found == ("tenant_pins", "$.mcp_servers.s.tool_projection.tenant_overrides")

    @pytest.mark.parametrize(
        ("text", "code", "path"),
        [
            (f"s: {{t: {A}, u: x}}", "bad_pin_value", "$.s.u"),
            (f"s: {{t: {A.upper()}}}", "bad_pin_value", "$.s.t"),
            ("s: {t: }", "wrong_type", "$.s.t"),
            ("s: text", "wrong_type", "$.s"),
            ("[]", "wrong_type", "$"),
            ("mcp_servers: {'a b': {tool_projection: []}}", "wrong_type", "$.mcp_servers[*].tool_projection"),
            (f"s: {{t: {A}, t: {B}}}", "duplicate_key", ""),
            (f"s: {{' ': {A}}}", "bad_identifier", ""),
            (
                "mcp_servers: {s: {tool_projection: {upstream: []}}}",
                "wrong_type",
                "$.mcp_servers.s.tool_projection.upstream",
            ),
        ],
    )
    def test_bad_files(self, text: str, code: str, path: str) -> None:
        assert _refused(text.encode(), "hangar") == (code, path)


class TestAssay:
    def test_one_name_on_two_servers_cannot_be_written(self) -> None:
        """Assay keys pins by the tool's name: neither is preferred, unless a server is asked for."""
        others = [pin._replace(server_id="other") for pin in IDENTITY]
        assert write_pins([*IDENTITY, *others], format="assay", server_id=None)[1] == [*others, *IDENTITY]
        raw, left_out = write_pins([*IDENTITY, *others], format="assay", server_id="s")
        assert left_out == others
        assert read_pins(raw, format="assay", server_id=None) == IDENTITY

    @pytest.mark.parametrize(
        ("pin", "code", "path"),
        [
            ({"tool_name": "u"}, "pin_name_differs", "$.tool_pins.t"),
            ({"schema_hash": f"sha256:{A}"}, "bad_pin_value", "$.tool_pins.t.schema_hash"),
            ({"meta_hash": 1}, "wrong_type", "$.tool_pins.t.meta_hash"),
            ({"server_id": None}, "wrong_type", "$.tool_pins.t.server_id"),
        ],
    )
    def test_bad_pins(self, pin: dict[str, Any], code: str, path: str) -> None:
        whole = {"server_id": "s", "tool_name": "t", "schema_hash": A, "meta_hash": B} | pin
        assert _refused(json.dumps({"tool_pins": {"t": whole}}).encode(), "assay") == (code, path)


class TestNative:
    def test_a_line(self) -> None:
        """One object a line, canonical, sorted by server, tool and scheme; blank lines are skipped."""
        other = PinEntry(None, "t", "mcptrust.risk_level", "LOW")
        raw, left_out = write_pins([HANGAR, other], format="native", server_id=None)
        assert left_out == []
        assert raw.decode() == (
            '{"scheme":"mcptrust.risk_level","server_id":null,"tool_name":"t","value":"LOW"}\n'
            f'{{"scheme":"hangar.v2","server_id":"s","tool_name":"t","value":"{A}"}}\n'
        )
        assert read_pins(b"\n" + raw.replace(b"\n", b"\r\n\r\n"), format="native", server_id=None) == [other, HANGAR]

    def test_the_server_of_pins_that_name_none(self) -> None:
        """The reader's; pins of other servers are not read then."""
        raw = _line(server_id=None) + b"\n" + _line(server_id="other")
        assert read_pins(raw, format="native", server_id="s") == [HANGAR]

    @pytest.mark.parametrize(
        ("members", "code", "path"),
        [
            ({"value": B[1:]}, "bad_pin_value", "$.value"),
            ({"scheme": "x"}, "unknown_value", "$.scheme"),
            ({"server_id": 1}, "wrong_type", "$.server_id"),
            ({"tool_name": None}, "wrong_type", "$.tool_name"),
            ({"comment": "x"}, "unknown_field", "$"),
            ({"server_id": " "}, "bad_identifier", ""),
        ],
    )
    def test_bad_lines(self, members: dict[str, Any], code: str, path: str) -> None:
        assert _refused(_line(**members), "native") == (code, path)

    def test_an_error_names_its_line(self) -> None:
        with raises_code("not_json") as caught:
            read_pins(_line() + b"\n{", format="native", server_id=None)
        assert caught.value.message.startswith("line 2: ")

    def test_a_line_without_a_member(self) -> None:
        assert _refused(b'{"tool_name":"t","scheme":"hangar.v2"}', "native") == ("missing_field", "$.value")


@pytest.mark.parametrize("second", [A, B])
def test_two_values_of_one_tool_are_refused(second: str) -> None:
    """Reading and writing; equal values too, for one of the two lines is not what its writer thinks."""
    assert _refused(_line() + b"\n" + _line(value=second), "native")[0] == "duplicate_pin"
    with raises_code("duplicate_pin"):
        write_pins([HANGAR, HANGAR._replace(value=second)], format="native", server_id=None)


@pytest.mark.parametrize("name", ["", " ", "\ud800", "n" * 1_025])
def test_a_name_that_nobody_could_read_back_is_refused(name: str) -> None:
    for pin in (HANGAR._replace(tool_name=name), HANGAR._replace(server_id=name)):
        with raises_code("bad_identifier"):
            write_pins([pin], format="native", server_id=None)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_bad_value_is_never_written(kind: PinFormat) -> None:
    with raises_code("bad_pin_value"):
        write_pins([HANGAR._replace(value="x")], format=kind, server_id=None)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_has_a_size(kind: PinFormat) -> None:
    assert _refused(b" " * (PIN_FILE_LIMITS.record_bytes_max + 1), kind)[0] == "too_large"


@pytest.mark.parametrize("kind", FORMATS)
def test_no_error_quotes_the_file(kind: PinFormat) -> None:
    secret = "hunter2 is no digest"
    texts = {
        "mcptrust": {"version": "2.0", "server_command": "s", "tools": {"t": {"risk_level": secret}}},
        "hangar": {"s": {"t": secret}},
        "assay": {"tool_pins": {"t": {"server_id": "s", "tool_name": "t", "schema_hash": secret, "meta_hash": A}}},
        "native": {"server_id": "s", "tool_name": "t", "scheme": "hangar.v2", "value": secret},
    }
    with pytest.raises(InputError) as caught:
        read_pins(json.dumps(texts[kind]).encode(), format=kind, server_id=None)
    assert "hunter2" not in str(caught.value)


# --- strict YAML: texts stay texts, and nothing is read in two ways -------------------------------------------

LIMITS = Limits(record_bytes_max=1_000, depth_max=4)


@pytest.fixture(autouse=True, params=["CBaseLoader", "BaseLoader"])
def _with_and_without_libyaml(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installations without the C library read alike."""
    monkeypatch.setattr(pin_files, "_LOADER", getattr(yaml, request.param))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a", "a"),
        ("a: on\nb: 1e3\nc: 0123\nd: 2026-01-01", {"a": "on", "b": "1e3", "c": "0123", "d": "2026-01-01"}),
        ("a:\nb: ~\nc: null\nd: 'null'\ne: ''", {"a": None, "b": None, "c": None, "d": "null", "e": ""}),
        ("null: 1\ntrue: 2", {"null": "1", "true": "2"}),
        ("- a\n- [b, {c: d}]", ["a", ["b", {"c": "d"}]]),
        ("a: &x {k: v}\nb: *x", {"a": {"k": "v"}, "b": {"k": "v"}}),
        ("a: &x v\nb: *x", {"a": "v", "b": "v"}),
        ('{"<<": 1}', {"<<": "1"}),
        ("# nothing\n---\na: b\n...\n", {"a": "b"}),
    ],
)
def test_what_is_read(text: str, value: Any) -> None:
    assert decode_yaml(text.encode(), limits=LIMITS) == value


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"a: 1\na: 2", "duplicate_key"),
        (b"a: {b: 1, b: 2}", "duplicate_key"),
        (b"a: 1\n'a': 2", "duplicate_key"),
        (b"a: &x {b: 1}\nc:\n  <<: *x", "unsupported_yaml"),
        (b"? [a]\n: b", "unsupported_yaml"),
        (b"a: &x k\n*x : b", "unsupported_yaml"),
        (b"a\n---\nb", "unsupported_yaml"),
        (b"a: *x", "not_yaml"),
        (b"a: [", "not_yaml"),
        (b"a: b: c", "not_yaml"),
        (b"\x00", "not_yaml"),
        (b"\xff", "not_utf8"),
        (b"[[[[[]]]]]", "too_deep"),
        (b"{a: {a: {a: {a: {a: 1}}}}}", "too_deep"),
        (b" " * 1_001, "too_large"),
    ],
)
def test_what_is_refused(raw: bytes, code: str) -> None:
    with raises_code(code):
        decode_yaml(raw, limits=LIMITS)


def test_depth_costs_no_stack() -> None:
    with pytest.raises(InputError) as caught:
        decode_yaml(b"[" * 100_000, limits=Limits())
    assert caught.value.code in {"too_deep", "not_yaml"}


@pytest.mark.parametrize(
    ("raw", "value"), [(b'{"a": 1}', {"a": 1}), (b"{a: 1}", {"a": "1"}), (b" [1]", [1]), (b"a: 1", {"a": "1"})]
)
def test_json_is_read_as_json(raw: bytes, value: Any) -> None:
    """What is JSON keeps its numbers; what only looks like it is YAML."""
    assert decode_json_or_yaml(raw, limits=LIMITS) == value


def test_json_is_not_read_as_yaml_when_it_is_refused() -> None:
    """A key twice in JSON is the end of it."""
    with raises_code("duplicate_key", "$.a"):
        decode_json_or_yaml(b'{"a": 1, "a": 2}', limits=LIMITS)


# --- what a pin's value looks like under each scheme ----------------------------------------------------------

BARE = "0123456789abcdef" * 4
PREFIXED = f"sha256:{BARE}"


@pytest.mark.parametrize(
    "tool",
    [{"name": "t"}, {"name": "rm", "inputSchema": {"type": "object"}}, {"name": "exec_shell", "description": "Runs."}],
)
def test_whatever_a_fingerprint_prints_can_be_pinned(tool: dict[str, Any]) -> None:
    for scheme, value in fingerprint(tool, server_id=None).schemes.items():
        assert check_value(scheme, value) == value


@pytest.mark.parametrize(
    ("scheme", "values"),
    [
        ("assay.v1", {PREFIXED}),
        ("assay.schema_hash", {BARE}),
        ("assay.meta_hash", {BARE}),
        ("assay.p60", {PREFIXED}),
        ("schemapin.v1", {BARE}),
        ("hangar.v1_2", {BARE}),
        ("hangar.v2", {BARE}),
        ("mcptrust.description_hash", {PREFIXED}),
        ("mcptrust.input_schema_hash", {PREFIXED, ""}),
        ("mcptrust.risk_level", {"LOW", "MEDIUM", "HIGH"}),
    ],
)
def test_each_scheme_takes_its_own_values_alone(scheme: str, values: set[str]) -> None:
    others = {"", BARE, PREFIXED, "LOW", "low", "MEDIUM", "HIGH", BARE.upper(), BARE[1:], f"{BARE}0", f"{BARE}\n"}
    for value in others | {f"{PREFIXED}\n", PREFIXED.upper(), f"sha512:{BARE}", "LOW\n"}:
        if value in values:
            assert check_value(scheme, value) == value
            continue
        with raises_code("bad_pin_value") as caught:
            check_value(scheme, value)
        assert scheme in caught.value.message


def test_another_scheme_is_refused() -> None:
    with raises_code("unknown_value", "$.scheme") as caught:
        check_value("assay.v2", PREFIXED)
    assert "hangar.v2" in caught.value.message


# --- members of an object, taken strictly ---------------------------------------------------------------------

WHOLE = {"a": {"b": ["x"], "n": True, "d": "sha256:" + "0" * 63}, "list": [{}, 7]}


@pytest.mark.parametrize(
    ("read", "code", "path"),
    [
        (lambda: Members([]), "wrong_type", "$"),
        (lambda: Members(WHOLE).take("b", str), "missing_field", "$.b"),
        (lambda: Members(WHOLE).object("list"), "wrong_type", "$.list"),
        (lambda: Members(WHOLE).object("a").take("n", int), "wrong_type", "$.a.n"),
        (lambda: Members(WHOLE).object("a").digest("d"), "bad_digest", "$.a.d"),
        (lambda: list(Members(WHOLE).objects("list")), "wrong_type", "$.list[1]"),
        (lambda: Members({"a": "y"}).one_of("a", ("x",)), "unknown_value", "$.a"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(read: Callable[[], Any], code: str, path: str) -> None:
    with raises_code(code, path):
        read()


def test_the_rest_is_what_nobody_took() -> None:
    members = Members({"a": 1, "b": "text"})
    assert members.take("b", str) == "text"
    assert members.rest == {"a": 1}
