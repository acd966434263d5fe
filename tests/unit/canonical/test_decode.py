"""Strict decoding: each refusal with its code and path, and the edges of what is taken."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from assay_stream.canonical import decode
from assay_stream.canonical.decode import decode_json, decode_json_strict, member_bytes, read_leniently
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, Limits
from tests.support.counting import allocating, passes
from tests.support.errors import raises_code

# Bytes, code, path: RFC 8259 for the grammar, RFC 7493 (I-JSON) section 2 for the rest.
REFUSALS = {
    "empty": (b"", "not_json", ""),
    "white_space_only": (b" \n", "not_json", ""),
    "byte_order_mark": (b"\xef\xbb\xbf{}", "not_json", ""),
    "trailing_garbage": (b"{} x", "not_json", ""),
    "two_values": (b"{}{}", "not_json", ""),
    "trailing_comma": (b"[1,]", "not_json", ""),
    "single_quotes": (b"{'a':1}", "not_json", ""),
    "comment": (b"[1] // one", "not_json", ""),
    "leading_zero": (b"[01]", "not_json", ""),
    "plus_sign": (b"[+1]", "not_json", ""),
    "raw_control_character": (b'["\x01"]', "not_json", ""),
    "bad_escape": (rb'["\x"]', "not_json", ""),
    "cut_off": (b'{"a":[1,2', "not_json", ""),
    "open_text": (b'{"a":"b', "not_json", ""),
    "not_utf8": (b'["\xff"]', "not_utf8", ""),
    "utf16": ('{"a":1}'.encode("utf-16"), "not_utf8", ""),
    "surrogate_in_utf8": (b'["\xed\xa0\x80"]', "not_utf8", ""),
    "overlong_utf8": (b'["\xc0\xaf"]', "not_utf8", ""),
    "duplicate_key": (b'{"a":1,"a":1}', "duplicate_key", "$.a"),
    "duplicate_key_by_escape": (rb'{"a":1,"\u0061":2}', "duplicate_key", "$.a"),
    "duplicate_key_deep": (
        b'{"data":{"tools":[1,{},[],{"name":{},"name":2}]}}',
        "duplicate_key",
        "$.data.tools[3].name",
    ),
    "duplicate_key_behind_an_object": (b'[{"a":{"b":1,"c":2},"d":[{}],"a":0}]', "duplicate_key", "$[0].a"),
    "duplicate_key_empty": (b'{"":1,"":2}', "duplicate_key", "$['']"),
    "duplicate_key_odd": (b"""{"it's \\"\\u0001":1,"it's \\"\\u0001":2}""", "duplicate_key", r"""$['it\'s "\u0001']"""),
    "duplicate_key_long": (b'{"%b":1,"%b":2}' % (b"k" * 100, b"k" * 100), "duplicate_key", "$." + "k" * 64),
    "same_key_elsewhere_first": (b'[{"a":{"a":1}},{"a":1,"a":1}]', "duplicate_key", "$[1].a"),
    "nan": (b'{"a":[1,NaN]}', "non_finite_number", "$.a[1]"),
    "infinity": (b"Infinity", "non_finite_number", "$"),
    "minus_infinity": (b"[-Infinity]", "non_finite_number", "$[0]"),
    "overflow": (b'{"a":"1e400","b":[0,1e400]}', "number_overflow", "$.b[1]"),
    "overflow_negative": (b"[[],-1e400]", "number_overflow", "$[1]"),
    "overflow_before_digits": (b"[1e4001e21]", "number_overflow", "$[0]"),
    "overflow_before_a_point": (b'{"a":1e400.5}', "number_overflow", "$.a"),
    "overflow_before_a_sign": (b"1e400-", "number_overflow", "$"),
    "overflow_integer": (b'{"a":2%b}' % (b"0" * 308), "number_overflow", "$.a"),
    "overflow_digits": (b'{"a":%b}' % (b"9" * 311), "number_overflow", "$.a"),
    "high_surrogate": (rb'{"a":["\ud83d\ude00","\ud83d"]}', "lone_surrogate", "$.a[1]"),
    "low_surrogate": (rb'["\ude00"]', "lone_surrogate", "$[0]"),
    "swapped_surrogates": (rb'"\ude00\ud83d"', "lone_surrogate", "$"),
    "surrogate_in_key": (rb'{"a":{"b":1,"\uD83D":2}}', "lone_surrogate", "$.a"),
}


class TestRefusals:
    @pytest.mark.parametrize("name", REFUSALS)
    def test_code_and_path(self, name: str) -> None:
        raw, code, path = REFUSALS[name]
        with raises_code(code, path):
            decode_json(raw)

    @pytest.mark.parametrize(
        "raw", [b'{"a":"hunter2","a":"hunter2"}', b'["hunter2",NaN]', b'["hunter2",1e400]', rb'["hunter2\ud800"]']
    )
    def test_no_values_in_messages(self, raw: bytes) -> None:
        with pytest.raises(InputError) as caught:
            decode_json(raw)
        assert "hunter2" not in str(caught.value)

    def test_the_first_offence_is_named(self) -> None:
        with raises_code("duplicate_key", "$.a.b"):
            decode_json(b'{"a":{"b":1,"b":2},"a":NaN}')

    def test_a_late_offence_is_found_in_linear_time(self) -> None:
        """The search for the path costs some 20 passes over the text, whatever stands in it."""

        def decode(text: str) -> None:
            with pytest.raises(InputError) as caught:
                decode_json(text.encode())
            assert caught.value.path == "$.b"

        for count in (100_000, 500_000):
            assert passes(decode, '{"a":["' + r"\"[{" * count + '"],"b":1,"b":2}') < 120


class TestSize:
    def test_twenty_megabytes(self) -> None:
        with raises_code("too_large"):
            decode_json(b"[" + b" " * 20_000_000 + b"]")

    def test_bound_is_inclusive(self) -> None:
        limits = Limits(record_bytes_max=4)
        assert decode_json(b"[10]", limits=limits) == [10]
        with raises_code("too_large"):
            decode_json(b"[100]", limits=limits)


class TestDepth:
    @pytest.mark.parametrize(("opened", "closed"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
    @pytest.mark.parametrize("decode", [decode_json, decode_json_strict])
    def test_bound_is_inclusive(self, decode: Any, opened: bytes, closed: bytes) -> None:
        levels = len(closed)
        outer = b"[" * (127 % levels)
        deepest = outer + opened * (127 // levels) + b"1" + closed * (127 // levels) + b"]" * len(outer)
        assert decode(deepest)
        with raises_code("too_deep"):
            decode(b"[" + deepest + b"]")

    @pytest.mark.parametrize(("opened", "closed"), [(b"[", b"]"), (b'{"a":', b"}")])
    @pytest.mark.parametrize("innermost", [b"[]", b"{}", b"[1]", b'{"a":"[{"}'])
    def test_bound_is_inclusive_in_a_long_text(self, opened: bytes, closed: bytes, innermost: bytes) -> None:
        """The same holds beside so much else that brackets are not counted, also of an empty innermost one."""
        beside = b'[{"a":[]}' + b',"[{"' * 1_000
        assert decode_json(beside + b"," + opened * 125 + innermost + closed * 125 + b"]")
        with raises_code("too_deep"):
            decode_json(beside + b"," + opened * 126 + innermost + closed * 126 + b"]")

    def test_open_text_full_of_quotes(self) -> None:
        """A text that never ends is refused in some 10 passes over it, whatever its length."""

        def decode(text: str) -> None:
            with raises_code("not_json"):
                decode_json(text.encode())

        for count in (250_000, 1_000_000):
            assert passes(decode, '[[],"' + r"\"[" * count) < 100


class TestNumbers:
    def test_largest_integer(self) -> None:
        """The largest integer that rounds to a finite double is taken; the digits limit is that of a double."""
        largest = int(1.7976931348623157e308)
        assert len(str(largest)) == Limits().integer_digits_max
        assert decode_json(str(largest).encode()) == largest
        assert decode_json(str(-largest).encode()) == -largest

    def test_digits_limit(self) -> None:
        with raises_code("number_overflow"):
            decode_json(b"[" + b"9" * 5_000_000 + b"]")

    @pytest.mark.parametrize(("digits_max", "digits"), [(5, 6), (19, 20), (5_000, 4_500)])
    @pytest.mark.parametrize("sign", ["", "-"])
    @pytest.mark.parametrize("decode", [decode_json, decode_json_strict])
    def test_other_digits_limits(self, decode: Any, sign: str, digits_max: int, digits: int) -> None:
        with raises_code("number_overflow"):
            decode(f"{sign}{'1' * digits}".encode(), limits=Limits(integer_digits_max=digits_max))

    def test_underflow(self) -> None:
        assert decode_json(b"1e-400") == 0.0


class TestForms:
    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_kinds_of_bytes(self, kind: Any) -> None:
        assert decode_json(kind(b'{"a":1}')) == {"a": 1}

    @pytest.mark.parametrize(
        ("raw", "value"),
        [
            (b' {"a" :\t1 ,\r\n"b":[ ]} ', {"a": 1, "b": []}),
            (rb'"\u0061\/\ud83d\ude00\n"', "a/\U0001f600\n"),
            ('"\U0001f600"'.encode(), "\U0001f600"),
            (b'"\xef\xbb\xbf"', "\ufeff"),
            (b'{"__proto__":null}', {"__proto__": None}),
            (b"true", True),
            (b"null", None),
        ],
    )
    def test_value(self, raw: bytes, value: Any) -> None:
        assert decode_json(raw) == decode_json_strict(raw) == value


class TestContainers:
    LIMITS = Limits(containers_max=4)

    @pytest.mark.parametrize("decode", [decode_json, decode_json_strict])
    @pytest.mark.parametrize("text", [b"[[],{},[],[]]", b"[ [], {}, [], [] ]", b'{"a":[[[[]]]]}'])
    def test_one_more_is_refused(self, decode: Callable[..., Any], text: bytes) -> None:
        with raises_code("too_many_containers"):
            decode(text, limits=self.LIMITS)

    def test_the_worst_text_within_the_limits_takes_little_memory(self) -> None:
        """8 MiB of empty arrays would take 180 MB; so many texts of two letters take what is allowed."""
        with allocating() as allocated, pytest.raises(InputError):
            decode_json(b"[" + b"[]," * 2_500_000 + b"0]")
        assert allocated.peak_bytes < 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"id":1,"id":2}', {"id": 2}),
        (b'{"id":1,"x":"\xff"}', {"id": 1, "x": "\ufffd"}),
        (b'\xef\xbb\xbf{"id":1}', {"id": 1}),
        (b'{"id":' + b"9" * 5_000 + b"}", {"id": float("inf")}),
        (b"not json", None),
        (b'{"id":1', None),
        (b"", None),
    ],
)
def test_what_a_forgiving_parser_makes_of_it(raw: bytes, value: object) -> None:
    """As JavaScript and Python clients do."""
    assert read_leniently(raw) == value


@pytest.mark.parametrize("depth", [200, 100_000])
def test_depth_does_not_hide_what_a_message_is(depth: int) -> None:
    deep = b'[{"x":"]}"},' * depth + b"1" + b"]" * depth
    message = read_leniently(b'{"result":{"tools":' + deep + b'},"id":7}')
    assert message["id"] == 7
    assert "tools" in message["result"]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"dir":"x","msg": {"a":[1,{"msg":2}]} ,"ts":1}', b'{"a":[1,{"msg":2}]}'),
        (b'{"msg":1,"msg":"a,}"}', b'"a,}"'),
        (b'{"ts":{"msg":1}}', None),
        (b'{"m\\u0073g":true}', b"true"),
        (b'{"msg":"\\"}"}', b'"\\"}"'),
    ],
)
def test_a_member_is_given_as_the_bytes_it_came_in(raw: bytes, expected: bytes | None) -> None:
    assert member_bytes(raw, "msg") == expected


def test_a_message_of_brackets_is_given_up_after_a_counted_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader takes a thread that other messages wait for. Each ``[],`` is three: two brackets and a comma."""
    monkeypatch.setattr(decode, "_TOKENS_MAX", 900_000)
    few, many = (b'{"id":1,"result":[' + b"[]," * count + b"1]}" for count in (299_900, 300_100))
    assert read_leniently(few)["id"] == 1
    assert read_leniently(many) is None


@given(st.binary(max_size=200))
def test_readers_are_total(raw: bytes) -> None:
    read_leniently(raw)
    member_bytes(raw, "msg")


@given(st.text(alphabet='{}[],:"\\1a ', max_size=60))
def test_readers_are_total_for_almost_json(text: str) -> None:
    read_leniently(text.encode())
    member_bytes(text.encode(), "a")


def test_a_message_with_too_many_containers_is_still_known_for_what_it_is() -> None:
    """What says so stands at its beginning; the containers beyond those that are kept are null."""
    count = DEFAULT_LIMITS.containers_max
    raw = b'{"id":1,"result":{"tools":[' + b"[]," * count + b'"end"]}}'
    found = read_leniently(raw)
    tools = found["result"]["tools"]
    assert (found["id"], len(tools), tools[0], tools[-2], tools[-1]) == (1, count + 1, [], None, "end")
