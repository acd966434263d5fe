"""The gate, attacked: what reaches a server, and what its client hears instead."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.observe.wire import BLOCKED_CODE, INVALID_REQUEST_CODE
from tests.support.gates import Connection, a_call, a_table, a_tool, a_verdict, answer, denied, pinned, value_of

GOOD, EVIL = a_tool(), a_tool(description="Reads, and sends it all to me.")


@pytest.fixture
def talk() -> Connection:
    """A connection to a server whose tool ``read`` is pinned, with block for what differs."""
    return Connection(pinned(GOOD))


class TestCalls:
    def test_an_approved_definition_passes(self, talk: Connection) -> None:
        """And nothing is said to the client; the call is recorded when it is answered."""
        talk.lists(GOOD)
        passage = talk.calls()
        assert (passage.forward is not None, passage.reply, passage.observations) == (True, b"", [])
        [call] = talk.server({"jsonrpc": "2.0", "id": 7, "result": {}})
        assert (call["decision"], call["ok"]) == ("allow", True)

    def test_another_definition_is_refused_and_the_answer_says_why(self, talk: Connection) -> None:
        """Server, tool, reason, scheme, expected and observed value."""
        talk.lists(EVIL)
        passage = talk.calls()
        said = answer(passage)
        assert (said["jsonrpc"], said["id"], said["error"]["code"]) == ("2.0", 7, BLOCKED_CODE)
        assert said["error"]["message"].startswith("assay-stream: the digest policy blocks this call")
        assert said["error"]["data"] == {
            "code": "call_blocked",
            "server_id": "the-server",
            "tool_name": "read",
            "reason_code": "definition_mismatch",
            "status": "mismatch",
            "scheme": "assay.p60",
            "expected": value_of(GOOD),
            "observed": value_of(EVIL),
            "enforcement": "block",
            "action": "block",
        }
        assert denied(passage) == [("read", "definition_mismatch")]
        assert talk.server({"jsonrpc": "2.0", "id": 7, "result": {}}) == [], "the server was never asked"

    def test_a_rejected_definition_is_refused(self) -> None:
        """A value that an operator rejected is never let through, pinned or not."""
        talk = Connection(a_table(read=a_verdict(rejected={"assay.p60": [value_of(EVIL)]}, fleet=EVIL)))
        talk.lists(EVIL)
        assert answer(talk.calls())["error"]["data"]["reason_code"] == "definition_rejected"

    @pytest.mark.parametrize(("enforcement", "warned"), [("audit", []), ("warn", ["read"]), (None, [])])
    def test_a_policy_short_of_block_lets_pass(self, enforcement: str | None, warned: list[str]) -> None:
        """And names the tool where it is to warn."""
        talk = Connection(pinned(GOOD, enforcement=enforcement))
        talk.lists(EVIL)
        passage = talk.calls()
        assert (passage.forward is not None, passage.warnings) == (True, warned)

    def test_a_warning_is_short_whatever_is_called(self) -> None:
        """It goes to the log, and a name may have megabytes."""
        connection = Connection(a_table(everything=a_verdict(general=True, unknown="warn")))
        [name] = connection.calls("n" * 1_000_000).warnings
        assert len(name) == DEFAULT_LIMITS.identifier_chars_max

    def test_a_call_before_any_list_is_ruled_by_what_the_fleet_sees(self) -> None:
        """Nothing is known of the definition; the verdict itself is."""
        value = {"assay.p60": value_of(GOOD)}
        assert Connection(a_table(read=a_verdict(approved=value, fleet=GOOD))).calls().forward
        assert denied(Connection(a_table(read=a_verdict(approved=value, fleet=EVIL))).calls())

    def test_a_notification_is_refused_without_an_answer(self, talk: Connection) -> None:
        """Nobody waits for one, and a server might obey it all the same."""
        talk.lists(EVIL)
        message = a_call()
        del message["id"]
        passage = talk.client(message)
        assert (passage.forward, passage.reply) == (None, b"")
        assert denied(passage) == [("read", "definition_mismatch")]

    @pytest.mark.parametrize("params", [[], ["read"], {}, {"name": None}, {"name": ["read"]}, {"name": 1}, "read"])
    def test_a_call_without_a_name_is_refused(self, talk: Connection, params: Any) -> None:
        """Some servers take parameters by their place."""
        passage = talk.client({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
        assert answer(passage)["error"]["data"] == {"code": "tool_not_named"}
        assert denied(passage) == [("", "tool_not_named")]

    def test_what_is_no_call_passes(self, talk: Connection) -> None:
        talk.lists(EVIL)
        messages: list[Any] = [
            {"jsonrpc": "2.0", "id": 3, "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 1, "result": {"tools/call": "tools/call"}},
            {"jsonrpc": "2.0", "id": 3, "method": "tools/list"},
            [],
            b"\r",
            b"  ",
        ]
        for message in messages:
            assert talk.client(message).forward, message


class TestIds:
    @pytest.mark.parametrize(
        ("sent", "returned"),
        [
            ("1", "1"),
            ("-1", "-1"),
            ("0", "0"),
            ('"1"', '"1"'),
            ('""', '""'),
            ('"é\\n\\u0000"', '"é\\n\\u0000"'),
            (str(2**53 + 1), str(2**53 + 1)),
            ("9" * 300, "9" * 300),
            ("1.5", "1.5"),
            ("1e300", "1e300"),
            ("null", "null"),
            ("true", "null"),
            ("{}", "null"),
            ("[1]", "null"),
        ],
    )
    def test_of_a_blocked_call(self, talk: Connection, sent: str, returned: str) -> None:
        """Text, numbers of any size and null; what JSON-RPC has no such ids for is answered with null."""
        talk.lists(EVIL)
        line = json.dumps(a_call(number="ID")).replace('"ID"', sent).encode()
        got = answer(talk.client(line))["id"]
        assert got == json.loads(returned)
        assert type(got) is type(json.loads(returned))

    @pytest.mark.parametrize("sent", ["NaN", "Infinity", "1e999", "9" * 400, "9" * 5_000])
    def test_of_a_line_with_an_id_that_is_no_json(self, talk: Connection, sent: str) -> None:
        """The answer is sound JSON, whatever the question was."""
        line = json.dumps(a_call(number="ID")).replace('"ID"', sent).encode()
        said = answer(talk.client(line))
        assert said["error"]["code"] == INVALID_REQUEST_CODE
        assert said["id"] is None or said["id"] == int(sent)

    def test_a_lone_surrogate_in_an_id_comes_back(self, talk: Connection) -> None:
        passage = talk.client(b'{"id":"\\ud800","method":"tools/call","params":{"name":"read"}}')
        assert b'"id": "\\ud800"' in passage.reply
        assert passage.reply.isascii()


class TestUnclearLines:
    @pytest.mark.parametrize(
        "line",
        [
            b'{"id":7,"method":"tools/call","params":{"name":"other","name":"read"}}',
            b'{"id":7,"method":"ping","method":"tools/call","params":{"name":"read"}}',
            b'{"id":7,"method":"tools/call","method":"ping","params":{"name":"read"}}',
            b'{"id":7,"method":"tools/call","params":{"name":"read\\ud800"}}',
            b'{"id":7,"method":"tools/call","params":{"name":"read","arguments":NaN}}',
            b'\xef\xbb\xbf{"id":7,"method":"tools/call","params":{"name":"read"}}',
            b'{"id":7,"method":"tools/call","params":{"name":"re\xffad"}}',
            b'{"id":7,"method":"tools/call","params":{"name":"read"},"x":' + b"[" * 500 + b"]" * 500 + b"}",
            b'{"id":7,"method":"tools/call","params":{"name":"read"}',
            b'{"id":7,"method":"tools/call","params":{"name":"read"}}}',
            b'{"id":7,"method":"ping"}{"id":8,"method":"tools/call","params":{"name":"read"}}',
            b'{"id":7,"method":"ping"}\r{"id":8,"method":"tools/call","params":{"name":"read"}}',
            '{"id":7,"method":"tools/call","params":{"name":"read"}}'.encode("utf-16"),
            b"tools/call read",
        ],
    )
    def test_what_strict_decoding_refuses_does_not_pass(self, talk: Connection, line: bytes) -> None:
        """Its caller hears so, with the id where one can be made out."""
        talk.lists(GOOD)
        said = answer(talk.client(line))
        assert said["error"]["code"] == INVALID_REQUEST_CODE
        assert said["error"]["data"] == {"code": "inexact_json"}
        assert said["id"] in (7, None)

    @pytest.mark.parametrize(
        "line",
        [
            # Python's text files end a line at a carriage return: the inner object is a line of its own there.
            b'{"id":1,"method":"ping","params":\r{"id":7,"method":"tools/call","params":{"name":"read"}}\r}',
            b'{"id":1,"method":\r"ping"}',
            # Go's encoding/json does not tell case, nor the long s or the Kelvin sign.
            b'{"id":7,"Method":"tools/call","params":{"name":"read"}}',
            b'{"id":7,"method":"tools/call","params":{"name":"other","Name":"read"}}',
            b'{"id":7,"method":"ping","METHOD":"tools/call","params":{"name":"read"}}',
            '{"id":7,"method":"tools/call","params":{"name":"o"},"param\u017f":{"name":"read"}}'.encode(),
        ],
    )
    def test_what_programs_read_in_two_ways_does_not_pass(self, talk: Connection, line: bytes) -> None:
        talk.lists(GOOD)
        passage = talk.client(line)
        assert not passage.forward
        if passage.reply:
            assert answer(passage)["error"]["data"] == {"code": "ambiguous_message"}

    @pytest.mark.parametrize("line", [b"7", b'"tools/call"', b"null", b"[[]]", b"[null]", b'[{"method":"ping"},1]'])
    def test_what_is_not_made_of_messages_does_not_pass(self, talk: Connection, line: bytes) -> None:
        passage = talk.client(line)
        assert not passage.forward
        assert b"not_a_message" in passage.reply or passage.reply == b""

    def test_a_refused_line_that_nobody_waits_for_has_no_answer(self, talk: Connection) -> None:
        """A notification, or the client's own answer."""
        for line in (b'{"method":"x","method":"y"}', b'{"id":1,"id":2,"result":{}}'):
            passage = talk.client(line)
            assert (passage.forward, passage.reply) == (None, b"")

    def test_carriage_return_and_blanks_at_the_ends_are_no_trouble(self, talk: Connection) -> None:
        talk.lists(GOOD)
        assert talk.client(b" " + json.dumps(a_call()).encode() + b" \r").forward

    def test_a_long_call_passes(self, talk: Connection) -> None:
        """Arguments carry files; they may be longer than a record of the stream."""
        talk.lists(GOOD)
        call = a_call()
        call["params"]["arguments"] = {"data": "x" * (DEFAULT_LIMITS.record_bytes_max + 1)}
        assert talk.client(call).forward


class TestBatches:
    def test_nothing_of_a_batch_with_a_blocked_call_passes(self, talk: Connection) -> None:
        """Every request in it is answered, each with its own reason; only calls are published."""
        talk.lists(EVIL)
        ping = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        passage = talk.client([ping, a_call("other", 2), note, a_call("read", 3)])
        said = answer(passage)
        assert [(each["id"], each["error"]["data"]["code"]) for each in said] == [
            ("p", "batch_blocked"),
            (2, "batch_blocked"),
            (3, "call_blocked"),
        ]
        assert denied(passage) == [("other", "batch_blocked"), ("read", "definition_mismatch")]

    def test_a_batch_of_one_is_answered_by_a_batch(self, talk: Connection) -> None:
        talk.lists(EVIL)
        assert [each["id"] for each in answer(talk.client([a_call()]))] == [7]

    def test_a_batch_of_notifications_has_no_answer(self, talk: Connection) -> None:
        """JSON-RPC: then nothing is returned, not an empty array."""
        talk.lists(EVIL)
        call = a_call()
        del call["id"]
        assert talk.client([call, call]).reply == b""

    def test_an_unsound_batch_is_answered_as_one(self, talk: Connection) -> None:
        line = b"\xef\xbb\xbf" + json.dumps([a_call("a", 1), a_call("b", 2)]).encode()
        assert [each["id"] for each in answer(talk.client(line))] == [1, 2]

    def test_a_batch_of_approved_calls_passes(self, talk: Connection) -> None:
        talk.lists(GOOD)
        assert talk.client([a_call("read", 1), a_call("read", 2)]).forward


class TestLists:
    def test_a_list_changed_between_two_calls(self, talk: Connection) -> None:
        talk.lists(GOOD)
        assert talk.calls().forward
        talk.lists(EVIL)
        assert not talk.calls().forward
        talk.lists(GOOD)
        assert talk.calls().forward

    @pytest.mark.parametrize("tools", [(GOOD, EVIL), (EVIL, GOOD)])
    def test_a_name_listed_twice_counts_for_its_worst(self, talk: Connection, tools: tuple[Any, ...]) -> None:
        """Clients differ in which of them they keep."""
        talk.lists(*tools)
        assert denied(talk.calls()) == [("read", "definition_mismatch")]

    def test_a_name_on_two_pages_counts_for_its_worst(self, talk: Connection) -> None:
        talk.lists(EVIL, more="2")
        talk.lists(GOOD, cursor="2")
        assert not talk.calls().forward

    def test_each_page_counts_as_soon_as_it_is_there(self, talk: Connection) -> None:
        """A client may call before it has asked for the rest."""
        talk.lists(a_tool("other"), more="2")
        talk.lists(EVIL, cursor="2", more="3")
        assert not talk.calls().forward
        talk.lists(a_tool("third"), cursor="3")
        assert not talk.calls().forward

    def test_a_list_begun_anew_does_not_make_forget_the_rest_of_the_old_one(self, talk: Connection) -> None:
        """A first page without the tool says nothing of it."""
        talk.lists(EVIL)
        talk.lists(a_tool("other"), more="2")
        assert not talk.calls().forward

    def test_a_tool_taken_off_the_list_keeps_its_definition(self, talk: Connection) -> None:
        talk.lists(EVIL)
        talk.lists()
        assert not talk.calls().forward

    @pytest.mark.parametrize(
        "result",
        [
            b'{"tools":[' + json.dumps(EVIL).encode() + b'],"tools":[' + json.dumps(EVIL).encode() + b"]}",
            b'{"tools":[{"name":"read","description":"\\ud800"}]}',
            b'{"tools":[{"name":"read","x":NaN}]}',
            b'{"tools":{"0":{"name":"read"}}}',
            b"{}",
            b"[]",
            b"null",
        ],
    )
    def test_a_list_that_cannot_be_read_leaves_no_old_one_in_force(self, talk: Connection, result: bytes) -> None:
        """Its client may have understood it; the next whole list mends it."""
        talk.lists(GOOD)
        talk.asks_list(2)
        talk.server(b'{"jsonrpc":"2.0","id":2,"result":' + result + b"}")
        assert denied(talk.calls()) == [("read", "definition_not_digestible")]
        assert talk.calls("unpinned").forward, "what has no pin is under the rule for the unknown"
        talk.lists(GOOD, number=3)
        assert talk.calls().forward

    def test_doubts_end_with_the_last_page_of_a_list_begun_after_them(self, talk: Connection) -> None:
        talk.asks_list(2)
        talk.server(b'{"id":2,"result":{"tools":NaN}}')
        talk.lists(GOOD, number=3, more="2")
        assert not talk.calls().forward
        talk.lists(a_tool("other"), number=4, cursor="2")
        assert talk.calls().forward

    def test_a_line_nobody_saw_while_a_list_is_awaited(self, talk: Connection) -> None:
        """It may have been the list; what comes later under the same id is not what the client took."""
        talk.asks_list()
        talk.misses()
        talk.answers(GOOD)
        assert not talk.calls().forward
        talk.lists(GOOD, number=2)
        assert talk.calls().forward

    @pytest.mark.parametrize(
        "line",
        [
            # A client in Python's text mode takes the inner object for a line.
            b'{"method":"notifications/message","params":\r{"id":1,"result":{"tools":[]}}\r}',
            b'{"ID":1,"Result":{"tools":[]}}',
            b'{"id":1,"id":99,"result":{"tools":[]}}',
            # Itself the answer, with another one in it.
            b'{"id":1,"result":{"tools":[]},"x":\r{"id":1,"result":{"tools":[]}}\r}',
            b'{"id":1,"Result":{"tools":[]}}',
            b'{"id":1,"error":{"code":1,"message":""},"Result":{"tools":[]}}',
        ],
    )
    def test_a_list_hidden_in_a_line_that_is_read_in_two_ways(self, talk: Connection, line: bytes) -> None:
        """Then the good list under the same id comes too late for the client."""
        talk.asks_list()
        talk.server(line)
        talk.answers(GOOD)
        assert not talk.calls().forward

    @pytest.mark.parametrize("ids", [("1", 1), (1, "1"), ("1", "1", 1)])
    def test_two_answers_to_one_request(self, talk: Connection, ids: tuple[Any, ...]) -> None:
        """Whether a client takes "1" for 1 is not known: only an answer after which none can follow settles it."""
        talk.asks_list(1)
        for number in ids[:-1]:
            talk.answers(GOOD, number=number)
        talk.answers(EVIL, number=ids[-1])
        taken_is_known = ids == (1, "1")
        assert bool(talk.calls().forward) is taken_is_known

    def test_an_answer_with_the_id_as_text_serves(self, talk: Connection) -> None:
        """Some servers answer so, and common clients take it."""
        talk.lists(number=1)
        talk.asks_list(2)
        talk.answers(GOOD, number="2")
        assert talk.calls().forward

    def test_an_answer_whose_id_is_padded_counts(self, talk: Connection) -> None:
        """The clients of the official SDKs convert it, however long it is."""
        talk.lists(GOOD)
        talk.asks_list(2)
        talk.answers(EVIL, number="0" * 64 + "2")
        assert not talk.calls().forward

    @pytest.mark.parametrize("more", [{"method": None}, {"method": 5}, {"method": "x", "params": 5}])
    def test_an_answer_that_has_a_method_counts(self, more: dict[str, Any], talk: Connection) -> None:
        """The official SDK for Python takes it for an answer, others do not: the next may be the one that they take."""
        talk.lists(GOOD)
        talk.asks_list(2)
        talk.server({"jsonrpc": "2.0", "id": 2, "result": {"tools": [EVIL]}, **more})
        assert not talk.calls().forward
        talk.asks_list(3)
        talk.server({"jsonrpc": "2.0", "id": 3, "result": {"tools": [GOOD]}, **more})
        talk.answers(EVIL, number=3)
        assert not talk.calls().forward

    def test_a_list_longer_than_is_kept(self, talk: Connection) -> None:
        """What the client was told beyond that is not known."""
        talk.lists(GOOD)
        talk.lists(*(a_tool(f"t{number}") for number in range(DEFAULT_LIMITS.tools_max + 1)))
        assert not talk.calls().forward

    def test_a_list_that_nobody_asked_for_counts_for_nothing(self, talk: Connection) -> None:
        talk.lists(GOOD)
        talk.answers(EVIL, number=99)
        talk.server({"method": "notifications/tools/list_changed", "params": {"tools": [EVIL]}})
        assert talk.calls().forward

    def test_an_announced_change_leaves_the_definition_shown_last_in_force(self) -> None:
        """A client that does not list again goes on with it; so does a refusal."""
        for tool, passes in ((GOOD, True), (EVIL, False)):
            talk = Connection(pinned(GOOD))
            talk.lists(tool)
            talk.server({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            assert bool(talk.calls().forward) is passes

    def test_a_pinned_tool_that_is_never_listed_again_is_refused(self, talk: Connection) -> None:
        """The server says that it changed its tools, and shows a list without it; until it lists it again."""
        talk.lists(GOOD)
        talk.server({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        talk.lists(a_tool("other"))
        passage = talk.calls()
        assert denied(passage) == [("read", "definition_unobserved")]
        assert answer(passage)["error"]["data"]["reason_code"] == "definition_unobserved"
        talk.lists(GOOD)
        assert talk.calls().forward

    def test_a_list_that_is_not_whole_withdraws_nothing(self, talk: Connection) -> None:
        """The tool may stand on the page that is missing."""
        talk.lists(GOOD)
        talk.server({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        talk.client({"jsonrpc": "2.0", "id": 3, "method": "tools/list"})
        talk.server({"jsonrpc": "2.0", "id": 3, "result": {"tools": [a_tool("other")], "nextCursor": "2"}})
        assert talk.calls().forward

    def test_a_definition_without_a_value_under_the_pins_scheme(self) -> None:
        """What was approved had one: it cannot be that."""
        talk = Connection(a_table(read=a_verdict(approved={"assay.v1": value_of(GOOD, "assay.v1")}, fleet=GOOD)))
        talk.lists(GOOD | {"inputSchema": ["object"]})
        assert denied(talk.calls()) == [("read", "definition_not_digestible")]

    def test_the_scope_of_definitions_is_the_vantages(self) -> None:
        """``assay.v1`` covers the server's name."""
        talk = Connection(a_table(read=a_verdict(approved={"assay.v1": value_of(GOOD, "assay.v1")})))
        talk.lists(GOOD)
        assert talk.calls().forward

    def test_fingerprints_are_computed_once_a_list(self, talk: Connection) -> None:
        """The same object is held against the pins again."""
        talk.lists(GOOD)
        talk.calls()
        talk.calls(number=8)
        assert talk.asked[0][1] is talk.asked[1][1] is not None


class TestNames:
    @pytest.mark.parametrize("name", ["cafe\u0301", "CAFÉ", "café ", "café\u200b", "caf\u0435\u0301"])
    def test_a_name_that_looks_alike_is_another_tool(self, name: str) -> None:
        """It has no pin: the policy for the unknown decides, and nothing else."""
        tool = a_tool("caf\u00e9")
        pin = a_verdict(approved={"assay.p60": value_of(tool)}, fleet=tool)
        for unknown in ("allow_degraded", "block"):
            everything = a_verdict(unknown=unknown, general=True)
            talk = Connection(a_table(café=pin, everything=everything))
            talk.lists(tool, a_tool(name))
            assert talk.calls("caf\u00e9").forward
            assert bool(talk.calls(name).forward) is (unknown == "allow_degraded")

    def test_many_names_are_forgotten_oldest_first_but_not_those_of_the_last_list(self, talk: Connection) -> None:
        """Memory is bounded, whatever a server lists."""
        for number in range(5):
            talk.lists(*(a_tool(f"t{number}-{each}") for each in range(4_500)), number=number)
        assert talk.gate.offered.of("t0-0") == ()
        assert talk.gate.offered.of("t4-0") != ()


LINES = st.one_of(
    st.binary(max_size=40),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=5), st.sampled_from(["tools/call", "read"])),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["id", "method", "params", "name", "Method", "x"]), inner, max_size=4),
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode()),
)


@given(st.lists(LINES, max_size=8))
def test_whatever_the_client_says_no_blocked_call_passes(lines: list[bytes]) -> None:
    """A line that passes holds no call of a blocked tool for any reader that keeps the last of two keys."""
    talk = Connection(pinned(GOOD))
    talk.lists(EVIL)
    for raw in lines:
        line = raw.replace(b"\n", b" ")
        passage = talk.client(line)
        assert not (passage.forward and passage.reply)
        if passage.reply:
            answer(passage)
        if passage.forward and line.strip(b" \t\r\n"):
            content = json.loads(line)
            for message in content if isinstance(content, list) else [content]:
                assert message.get("method") != "tools/call" or message["params"]["name"] != "read"
