"""The thread that looks at what passes."""

import itertools
import json
import os
import random
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from assay_stream.observe import Observation, tap
from assay_stream.observe.session import LINE_BYTES_MAX, Session
from assay_stream.observe.tap import STEP_BYTES, ClientOutput, Enforcer, LineSplitter, Watch
from assay_stream.observe.wire import BLOCKED_CODE, NOT_RULED_ON
from tests.support.gates import Connection, a_call, a_table, a_tool, a_verdict, pinned, value_of
from tests.support.mcp_dialogue import START, THE_VANTAGE, data_of

LIST = b'{"id":1,"method":"tools/list"}\n'
CALL = b'{"id":2,"method":"tools/call","params":{"name":"a"}}\n'


def a_session() -> Session:
    ids = itertools.count()
    return Session(THE_VANTAGE, session_id="s", new_id=lambda: str(next(ids)))


def a_watch(found: list[Observation], **options: Any) -> Watch:
    return Watch(a_session(), publish=found.append, clock=lambda: START, **options)


def fail(*_: object) -> Any:
    raise RuntimeError("boom")


def finish(watch: Watch) -> None:
    watch.finish()
    watch.join(5)
    assert not watch.is_alive()


def test_what_was_seen_is_looked_at_in_order_and_open_calls_are_given() -> None:
    """Also a last line without its line feed."""
    found: list[Observation] = []
    watch = a_watch(found)
    watch.start()
    watch.receive("client->server", LIST)
    watch.receive("server->client", b'{"id":1,"result":{"tools":[]}}\n')
    watch.receive("client->server", CALL.rstrip())
    finish(watch)
    assert [observation.kind for observation in found] == ["list", "call"]
    snapshot, call = data_of(found)
    assert call["snapshot_id"] == snapshot["snapshot_id"]
    assert call["error"] == {"code": "no_response"}


def test_a_backlog_that_is_full_loses_lines_but_not_the_fact() -> None:
    """A list that may have been among them is published as bad."""
    found: list[Observation] = []
    watch = a_watch(found, bytes_max=100 + 2 * STEP_BYTES)
    watch.receive("client->server", LIST)
    for _ in range(3):
        watch.receive("server->client", b'{"id":1,"result":{"tools":[' + b" " * 100)
    watch.start()
    finish(watch)
    [observation] = found
    assert json.loads(observation.value)["data"]["tools"] == {"unreadable": "line missed"}


def test_the_backlog_bounds_memory_also_where_a_server_writes_byte_by_byte() -> None:
    """Each piece that waits costs hundreds of bytes, whatever its size."""
    watch = a_watch([], bytes_max=100 * STEP_BYTES)
    for _ in range(1_000):
        watch.receive("server->client", b" ")
    assert watch._steps.qsize() < 110


def test_a_line_too_long_is_missed() -> None:
    found: list[Observation] = []
    watch = a_watch(found, line_bytes_max=50)
    watch.start()
    watch.receive("client->server", LIST)
    watch.receive("server->client", b"x" * 60 + b"\n")
    finish(watch)
    assert len(found) == 1


def test_a_failure_is_counted_and_said_once_and_nothing_stops(caplog: pytest.LogCaptureFixture) -> None:
    found: list[Observation] = []
    failing = threading.Event()

    def publish(observation: Observation) -> None:
        if not failing.is_set():
            failing.set()
            raise RuntimeError("boom")
        found.append(observation)

    watch = Watch(a_session(), publish=publish, clock=lambda: START)
    watch.start()
    watch.receive("client->server", b'{"method":"tools/call","params":{"name":"a"}}\n')
    watch.receive("client->server", CALL)
    finish(watch)
    assert (watch.failures, len(found), len(caplog.records)) == (1, 1, 1)


def test_seeing_never_raises() -> None:
    watch = Watch(a_session(), publish=print, clock=fail)
    watch.receive("client->server", LIST)
    assert watch.failures == 1


GOOD, EVIL = a_tool(), a_tool(description="Other.")


class Bench:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.observations: list[Observation] = []
        self.server_reads, self._server_input = os.pipe()
        self.client_reads, self._client_output = os.pipe()
        for descriptor in (self.server_reads, self.client_reads):
            os.set_blocking(descriptor, False)
        self.output = ClientOutput(self._client_output)
        self.enforcer = Enforcer(
            connection.gate,
            server_input=self._server_input,
            client=self.output,
            publish=self.observations.append,
            clock=lambda: START,
        )

    def at_server(self) -> bytes:
        return _all(self.server_reads)

    def at_client(self) -> bytes:
        return _all(self.client_reads)

    def send(self, data: bytes) -> None:
        self.enforcer.receive("client->server", data)

    def serve(self, data: bytes) -> None:
        self.enforcer.receive("server->client", data)

    def close(self) -> None:
        for descriptor in (self.server_reads, self._server_input, self.client_reads, self._client_output):
            os.close(descriptor)


def _all(descriptor: int) -> bytes:
    parts = []
    while True:
        try:
            parts.append(os.read(descriptor, 65_536))
        except BlockingIOError:
            return b"".join(parts)


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


RULED_CALL = line(a_call())
ASK = line({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})


def listed(*tools: Any) -> bytes:
    return line({"jsonrpc": "2.0", "id": 1, "result": {"tools": list(tools)}})


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(Connection(pinned(GOOD), cut=False))
    yield made
    made.close()


def told(bench: Bench, *tools: Any) -> None:
    bench.send(ASK)
    bench.serve(listed(*tools))
    assert (bench.at_server(), bench.at_client()) == (ASK, listed(*tools))


@pytest.mark.parametrize(("limit_s", "reaches"), [(60.0, True), (0.01, False)], ids=["written", "not_read"])
def test_a_call_at_once_after_a_list_waits_until_it_is_written(limit_s: float, reaches: bool) -> None:
    """Within a limit, as a client may write before it reads. The fleet sees another definition than this client."""
    verdict = a_verdict(approved={"assay.p60": value_of(GOOD)}, fleet=EVIL)
    bench = Bench(Connection(a_table(**{GOOD["name"]: verdict}), cut=False))
    call, write = threading.Thread(target=bench.send, args=(RULED_CALL,)), bench.output.pass_on

    def pass_on(data: bytes) -> None:
        write(data)
        call.start()
        call.join(0.05 if reaches else 60)

    bench.send(ASK)
    with patch.object(tap, "_DELIVERY_LIMIT_S", limit_s), patch.object(bench.output, "pass_on", pass_on):
        bench.serve(listed(GOOD))
        call.join(60)
    assert bench.at_server() == (ASK + RULED_CALL if reaches else ASK)
    bench.close()


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_lines_that_pass_reach_the_server_byte_by_byte_as_they_were(bench: Bench, size: int) -> None:
    """However they are cut: line feeds, carriage returns, blanks and empty lines included."""
    told(bench, GOOD)
    sent = b"\n\r\n  " + RULED_CALL + b'{ "id" : 2.50, "method":"ping" }\r\n' + RULED_CALL + RULED_CALL.rstrip()
    for start in range(0, len(sent), size):
        bench.send(sent[start : start + size])
    assert bench.at_server() == sent[: sent.rindex(b"\n") + 1]
    bench.enforcer.ended("client->server")
    assert bench.at_server() == RULED_CALL.rstrip()


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_blocked_line_leaves_no_trace_between_others(bench: Bench, size: int) -> None:
    told(bench, EVIL)
    ping = line({"id": 3, "method": "ping"})
    sent = ping + RULED_CALL + ping
    for start in range(0, len(sent), size):
        bench.send(sent[start : start + size])
    assert bench.at_server() == ping + ping
    [said] = bench.at_client().splitlines()
    assert json.loads(said)["id"] == 7
    assert bench.enforcer.blocked == 1
    assert json.loads(bench.observations[-1].value)["data"]["decision"] == "deny"


def test_a_blocked_last_line_without_its_end_is_answered_too(bench: Bench) -> None:
    """The client closed early; it may still read."""
    told(bench, EVIL)
    bench.send(RULED_CALL.rstrip())
    assert bench.at_client() == b""
    bench.enforcer.ended("client->server")
    assert bench.at_server() == b""
    assert json.loads(bench.at_client())["id"] == 7


def test_an_answer_waits_for_the_end_of_the_servers_line(bench: Bench) -> None:
    """Two messages on one line would be none."""
    told(bench, EVIL)
    bench.serve(b'{"part":')
    bench.send(RULED_CALL + RULED_CALL)
    bench.serve(b"1")
    assert bench.at_client() == b'{"part":1'
    bench.serve(b'}\n{"next":2}\n{"third"')
    first, second, *answers, rest = bench.at_client().split(b"\n")
    assert (first, second, rest) == (b"}", b'{"next":2}', b'{"third"')
    assert [json.loads(each)["id"] for each in answers] == [7, 7]
    bench.send(RULED_CALL)
    assert bench.at_client() == b""
    bench.serve(b":3}\n")
    assert bench.at_client().startswith(b":3}\n{")


def test_answers_that_wait_for_a_line_without_end_are_bounded(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Calls stay blocked; the log says which one was left without an answer."""
    told(bench, EVIL)
    bench.enforcer.client = ClientOutput(bench._client_output, replies_bytes_max=2_000)
    bench.serve(b'{"part":')
    for number in range(50):
        bench.send(line(a_call("read", number)))
    bench.serve(b"1}\n")
    _, *answers = bench.at_client().splitlines()
    assert [json.loads(each)["id"] for each in answers] == list(range(len(answers)))
    assert 1 < len(answers) < 10
    assert (bench.enforcer.blocked, bench.enforcer.unanswered) == (50, 50 - len(answers))
    [logged] = caplog.messages
    assert f'"id": {len(answers)}' in logged
    bench.send(line(a_call("read", 50)))
    assert json.loads(bench.at_client())["id"] == 50


def test_between_lines_an_answer_does_not_wait(bench: Bench) -> None:
    """The server may say nothing for hours."""
    told(bench, EVIL)
    bench.send(RULED_CALL)
    assert json.loads(bench.at_client())["id"] == 7


def test_something_of_the_server_that_looks_like_our_answer_is_passed_on_as_it_is(bench: Bench) -> None:
    """The client has its answer once: under the id of a call that the server never got."""
    told(bench, EVIL)
    bench.send(RULED_CALL)
    ours = bench.at_client()
    bench.serve(ours)
    assert bench.at_client() == ours
    assert bench.connection.gate.stats.unmatched_responses == 1


def test_answers_and_the_servers_lines_are_never_mixed_under_load() -> None:
    """Two threads, small pieces; every line of either side arrives whole."""
    bench = Bench(Connection(pinned(GOOD), cut=False))
    told(bench, EVIL)
    os.set_blocking(bench.client_reads, True)
    chance = random.Random(1)
    server_lines = b"".join(line({"s": "x" * chance.randrange(200), "n": number}) for number in range(400))
    received: list[bytes] = []

    def serve() -> None:
        at = 0
        while at < len(server_lines):
            size = chance.randrange(1, 90)
            bench.serve(server_lines[at : at + size])
            at += size

    def call() -> None:
        for number in range(400):
            bench.send(line(a_call("read", number)))

    threads = [threading.Thread(target=each, daemon=True) for each in (serve, call)]
    for thread in threads:
        thread.start()
    while b"".join(received).count(b"\n") < 800:
        received.append(os.read(bench.client_reads, 65_536))
    for thread in threads:
        thread.join(10)
    lines = [json.loads(each) for each in b"".join(received).splitlines()]
    assert [each["n"] for each in lines if "n" in each] == list(range(400))
    assert [each["id"] for each in lines if "id" in each] == list(range(400))
    bench.close()


def test_a_line_too_long_to_look_at_does_not_pass(bench: Bench) -> None:
    """And what comes after it is ruled on as before."""
    told(bench, GOOD)
    piece = b"x" * (LINE_BYTES_MAX // 4)
    for _ in range(5):
        bench.send(piece)
    bench.send(b"\n" + RULED_CALL)
    assert bench.at_server() == RULED_CALL
    said = json.loads(bench.at_client())
    assert (said["id"], said["error"]["data"]) == (None, {"code": "not_ruled_on"})


def test_a_rule_that_fails_holds_the_call_back(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Its caller hears so, and one traceback is logged however often it fails."""
    told(bench, GOOD)

    bench.connection.gate.decide = fail
    bench.send(RULED_CALL + RULED_CALL + line({"id": 3, "method": "ping"}))
    assert bench.at_server() == line({"id": 3, "method": "ping"})
    said = [json.loads(each) for each in bench.at_client().splitlines()]
    assert [(each["id"], each["error"]["data"]["code"]) for each in said] == [(7, "not_ruled_on")] * 2
    assert NOT_RULED_ON in said[0]["error"]["message"]
    assert (bench.enforcer.failures, bench.enforcer.blocked) == (2, 2)
    assert [json.loads(each.value)["data"]["reason_code"] for each in bench.observations[-2:]] == [
        "not_ruled_on",
        "not_ruled_on",
    ]
    assert len(caplog.records) == 1


def test_a_clock_that_fails_holds_everything_back_but_ends_nothing(bench: Bench) -> None:
    """Closed towards the server, open towards the client."""
    told(bench, GOOD)

    bench.enforcer.clock = fail
    bench.send(RULED_CALL)
    bench.serve(b"hello\n")
    assert bench.at_server() == b""
    answered, greeting = bench.at_client().splitlines()
    assert json.loads(answered)["error"]["data"] == {"code": "not_ruled_on"}
    assert greeting == b"hello"


def test_a_failure_while_looking_at_the_server_is_not_felt_but_leaves_its_lists_in_doubt(bench: Bench) -> None:
    """Its bytes pass, and pinned tools are held back until the next list."""
    told(bench, GOOD)

    with patch.object(bench.connection.gate, "_from_server", fail):
        bench.serve(b"anything\n")
    assert bench.at_client() == b"anything\n"
    bench.send(RULED_CALL)
    assert bench.at_server() == b""
    bench.at_client()
    told(bench, GOOD)
    bench.send(RULED_CALL)
    assert bench.at_server() == RULED_CALL


def test_a_publisher_that_fails_is_not_felt(bench: Bench) -> None:
    """What may pass passes, what may not does not."""
    told(bench, EVIL)

    bench.enforcer.publish = fail
    bench.send(RULED_CALL + ASK)
    assert bench.at_server() == ASK
    bench.serve(listed(GOOD))
    assert bench.at_client().count(b"\n") == 2
    assert bench.enforcer.failures == 2


def test_the_servers_last_line_is_looked_at_without_its_end(bench: Bench) -> None:
    """It died in the middle of saying its tools."""
    bench.send(ASK)
    bench.serve(listed(EVIL).rstrip())
    assert bench.observations == []
    bench.enforcer.ended("server->client")
    assert [each.kind for each in bench.observations] == ["list"]


def test_after_the_end_nothing_passes_and_open_calls_are_published(bench: Bench) -> None:
    told(bench, GOOD)
    bench.send(RULED_CALL)
    bench.enforcer.close(0)
    assert json.loads(bench.observations[-1].value)["data"]["error"] == {"code": "no_response"}
    count = len(bench.observations)
    bench.at_server()
    bench.send(RULED_CALL)
    assert (bench.at_server(), bench.at_client()[len(listed(GOOD)) :]) == (b"", b"")
    assert len(bench.observations) == count


def test_a_server_that_has_gone_is_an_error_for_the_pump(bench: Bench) -> None:
    told(bench, GOOD)
    os.close(bench.server_reads)
    try:
        with pytest.raises(BrokenPipeError):
            bench.send(RULED_CALL)
    finally:
        bench.server_reads = os.open(os.devnull, os.O_RDONLY)


def test_a_warned_call_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Escaped: the name is the server's text."""
    tool = a_tool("re\nad")
    bench = Bench(Connection(pinned(tool, enforcement="warn"), cut=False))
    told(bench, a_tool("re\nad", "Other."))
    bench.send(line(a_call("re\nad")))
    assert bench.at_server() != b""
    assert r"'re\nad'" in caplog.text
    bench.close()


@pytest.fixture(name="hiding")
def _hiding() -> Iterator[Bench]:
    bench = Bench(Connection(pinned(GOOD), cut=False, hide=True))
    yield bench
    bench.close()


ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[%s]}}'
HIDDEN = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}\n'


class TestHiding:
    def test_no_part_of_a_refused_tool_reaches_the_client_however_it_arrives(self, hiding: Bench) -> None:
        """Byte by byte, and begun before the client asked: the id is easy to guess."""
        line = ANSWER % json.dumps(EVIL).encode() + b"\n"
        for place, byte in enumerate(line):
            if place == len(line) - 1:
                hiding.send(LIST)
            assert hiding.at_client() == b""
            hiding.serve(bytes([byte]))
        assert hiding.at_client() == HIDDEN

    def test_other_lines_pass_byte_for_byte(self, hiding: Bench) -> None:
        """Blank ones, broken ones, those with a carriage return, and the last one without a line feed."""
        said = b'\n \r\n{"jsonrpc":"2.0" ,"method":"x"}\r\n{broken\n' + ANSWER % json.dumps(GOOD).encode() + b"\n{"
        hiding.serve(said)
        hiding.enforcer.ended("server->client")
        assert hiding.at_client() == said

    def test_a_line_that_fails_to_be_inspected_is_withheld(self, hiding: Bench) -> None:
        with patch.object(hiding.connection.gate, "_from_server", fail):
            hiding.serve(ANSWER % json.dumps(EVIL).encode() + b"\n")
        assert b"IMPORTANT" not in (said := hiding.at_client())
        assert json.loads(said)["error"]["code"] == BLOCKED_CODE
        assert (hiding.enforcer.failures, hiding.enforcer.withheld) == (1, 1)

    def test_a_line_too_long_is_withheld(self, hiding: Bench) -> None:
        """Whoever waits for a list gets an error."""
        hiding.enforcer._lines._splitters["server->client"] = LineSplitter(60)
        hiding.send(LIST)
        hiding.serve(ANSWER % json.dumps(EVIL).encode() + b"\n" + b"{}\n")
        said, rest = hiding.at_client().splitlines()
        assert (json.loads(said)["id"], rest) == (1, b"{}")

    def test_the_log_names_what_is_hidden(self, hiding: Bench, caplog: pytest.LogCaptureFixture) -> None:
        tools = [a_tool(f"{EVIL['name']}", description=f"{number}") for number in range(7)]
        hiding.serve(ANSWER % ",".join(map(json.dumps, tools)).encode() + b"\n")
        [record] = caplog.records
        assert record.getMessage().endswith("'read', 'read', 'read', 'read', 'read' and 2 more")

    def test_a_server_cannot_fill_the_log_with_lists(self, hiding: Bench, caplog: pytest.LogCaptureFixture) -> None:
        """It may send as many as it likes, unasked, with names of its own."""
        hiding.connection.table = a_table(everything=a_verdict(unknown="block", general=True))
        for name in (*(["same"] * 3), *map(str, range(300))):
            hiding.serve(ANSWER % json.dumps(a_tool(name)).encode() + b"\n")
        logged = [record.getMessage() for record in caplog.records]
        assert len(logged) == len(set(logged)) == 100


def test_a_call_that_races_a_new_list_is_decided_by_the_one_that_the_client_has(bench: Bench) -> None:
    """The client has not read the new list: its pipe is full. What it may have read half of counts as well."""

    def passes(number: int) -> bool:
        return bench.connection.calls(number=number).forward is not None

    bench.connection.table = pinned(GOOD)
    bench.connection.lists(GOOD)
    bench.connection.asks_list(2)
    begun, may_end = threading.Event(), threading.Event()

    def blocked(_: int, data: bytes) -> None:
        begun.set()
        may_end.wait(10)

    with patch("assay_stream.observe.tap.write_all", blocked):
        line = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"tools": [EVIL]}}).encode() + b"\n"
        writing = threading.Thread(target=bench.serve, args=(line,))
        assert passes(7), "before it begins to pass, the old one counts"
        writing.start()
        begun.wait(10)
        assert not passes(8), "either may have been read"
        bench.connection.table = pinned(EVIL)
        assert not passes(9), "nor the old one"
        may_end.set()
        writing.join(10)
    assert passes(10), "now the new one counts alone"
