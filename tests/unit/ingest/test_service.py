"""The HTTP service under clients that are slow, gone, hostile or mistaken."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from assay_stream.config import Settings
from assay_stream.ingest.requests import EventJudge, JudgedEvent, KnownClient, hash_of, new_token, read_clients
from assay_stream.ingest.service import STEP_BYTES, TURN_BYTES, IngestService, take_turn
from assay_stream.ingest.writer import AcceptedWindow, EventWriter
from assay_stream.limits import INGEST_LIMITS, IngestLimits
from assay_stream.model.record import Role
from assay_stream.observe.http.listener import Listener
from tests.support.deployment import free_port
from tests.support.ingest import BATCH, STRUCTURED, a_call, a_list, batch, until
from tests.support.producers import FakeProducer, Sent
from tests.support.raw_http import connect, exchange
from tests.support.toml import toml_of

TOKEN, OTHER_TOKEN = new_token(), new_token()
CLIENTS = read_clients(
    toml_of(
        {
            "clients": [
                {"observer_id": "gw-1", "servers": ["time"], "token": hash_of(TOKEN)},
                {"observer_id": "gw-2", "servers": ["time"], "token": hash_of(OTHER_TOKEN)},
            ]
        }
    ).encode(),
    "clients",
)


@dataclass
class Served:
    url: str
    sent: Sent
    writer: EventWriter
    room_left_bytes: Callable[[], int] = int
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, events: Mapping[str, int]) -> None:
        for what, number in events.items():
            self.counts[what] = self.counts.get(what, 0) + number

    async def send(self, body: bytes, *fields: str, kind: str = STRUCTURED) -> tuple[int, bytes, Any]:
        status, head, content = await exchange(self.url, a_request(body, *fields, kind=kind))
        return status, head, json.loads(content)


def a_request(body: bytes, *fields: str, kind: str = STRUCTURED, length: int | None = None) -> bytes:
    head = ["POST /v1/events HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {TOKEN}", *fields]
    head += [f"Content-Type: {kind}"] if kind else []
    return "\r\n".join([*head, f"Content-Length: {len(body) if length is None else length}", "", ""]).encode() + body


@asynccontextmanager
async def serving(
    limits: IngestLimits = INGEST_LIMITS, *, is_restored: bool = True, judge: EventJudge | None = None
) -> AsyncIterator[Served]:
    sent = Sent()
    sent.answers.set()
    port = free_port()
    writer = EventWriter(Settings(), AcceptedWindow(limits), producer=lambda: FakeProducer(sent), limits=limits)
    served = Served(f"http://127.0.0.1:{port}/v1/events", sent, writer)
    service = IngestService(
        writer,
        lambda: CLIENTS,
        judge or EventJudge(),
        is_restored=lambda: is_restored,
        count=served.count,
        listener=Listener(port=port),
        limits=limits,
    )
    tasks = [asyncio.create_task(writer.run()), asyncio.create_task(service.run())]
    await until(lambda: writer.ready and service.ready)
    served.room_left_bytes = lambda: service._room.left_bytes
    try:
        yield served
        assert service._room.left_bytes == limits.pending_bytes_max, "room was lost"
    finally:
        service.stop()
        await tasks[1]
        writer.stop()
        await tasks[0]


async def test_unknown_members_of_a_call_are_accepted_and_listed() -> None:
    """A later release may have them, and a misspelt one would be missed only when its evidence is needed."""
    async with serving() as served:
        event = json.loads(a_call(1).value)
        event["data"] |= {"args_hsh": "0" * 64, **{f"x{number}": number for number in range(9)}}
        for outcome in ("accepted", "duplicate"):
            status, _, content = await served.send(json.dumps(event).encode())
            assert status == 202
            ignored = ["args_hsh", *(f"x{number}" for number in range(7))]
            assert content["outcomes"] == [{"index": 0, "outcome": outcome, "ignored": ignored}]
        _, _, content = await served.send(a_call(2).value)
        assert content["outcomes"] == [{"index": 0, "outcome": "accepted"}]


async def test_a_batch_says_what_became_of_each_event() -> None:
    """Some accepted: 207; none: the gravest refusal; all: 202."""
    async with serving() as served:
        wrong = a_call(2).value.replace(b'"allow"', b'"perhaps"')
        body = b"[" + b",".join((a_call(1).value, wrong, a_call(1).value, a_call(3, server="mail").value)) + b"]"
        status, _, content = await served.send(body, kind=BATCH)
        assert status == 207
        assert [each["outcome"] for each in content["outcomes"]] == ["accepted", "refused", "duplicate", "refused"]
        assert [each.get("error", {}).get("code") for each in content["outcomes"]] == [
            None,
            "unknown_value",
            None,
            "not_yours",
        ]
        assert content["outcomes"][3]["error"]["path"] == "$.data.server_id"
        assert (await served.send(b"[" + wrong + b"," + a_call(3, server="mail").value + b"]", kind=BATCH))[0] == 403
        assert (await served.send(b"[" + wrong + b"]", kind=BATCH))[0] == 422
        assert (await served.send(batch(a_call(1), a_call(9)), kind=BATCH))[0] == 202
        assert served.counts == {"accepted": 2, "duplicate": 2, "refused:unknown_value": 3, "refused:not_yours": 2}


async def test_a_list_that_nobody_can_read_is_refused_and_recorded() -> None:
    """Otherwise calls would stay bound to the list before it."""
    unsound = a_list(1).value.replace(b'"name"', b'"name":1,"name"')
    async with serving() as served:
        status, _, content = await served.send(unsound)
        assert (status, content["outcomes"][0]["recorded"]) == (422, True)
        assert served.sent.of(Role.SNAPSHOTS) == [unsound]


async def test_nothing_is_accepted_that_is_not_acknowledged() -> None:
    """503 with Retry-After; what was on its way is waited for when it comes again, and room is held meanwhile."""
    limits = replace(INGEST_LIMITS, ack_limit_s=0.2)
    async with serving(limits) as served:
        served.sent.answers.clear()
        status, head, content = await served.send(batch(a_call(1), a_call(2)), kind=BATCH)
        assert (status, b"Retry-After: 10" in head) == (503, True)
        assert [each["outcome"] for each in content["outcomes"]] == ["unavailable", "unavailable"]
        # Kafka does not answer: nobody waits for it any more.
        assert (await served.send(a_call(3).value))[0] == 503
        served.sent.answers.set()
        await until(lambda: served.writer.pending == 0)
        status, _, content = await served.send(batch(a_call(1), a_call(2), a_call(3)), kind=BATCH)
        assert [each["outcome"] for each in content["outcomes"]] == ["duplicate", "duplicate", "accepted"]
        assert len(served.sent.of(Role.CALLS)) == 3


async def test_too_much_gets_429() -> None:
    """Of one client and of all; once it is through, there is room again."""
    limits = replace(INGEST_LIMITS, client_bytes_max=3 * len(a_call(1).value))
    async with serving(limits) as served:
        served.sent.answers.clear()
        first = asyncio.create_task(served.send(a_call(1).value))
        await until(lambda: served.writer.pending == 1)
        status, head, content = await served.send(a_call(2).value)
        assert (status, b"Retry-After: 1" in head, content["error"]["code"]) == (429, True, "too_many_requests")
        served.sent.answers.set()
        assert (await first)[0] == 202
        assert (await served.send(a_call(2).value))[0] == 202


async def test_one_client_does_not_take_the_requests_of_others() -> None:
    """By requests whose bodies never come: more of them get 429, and another client is served."""
    async with serving(replace(INGEST_LIMITS, requests_max=4, client_requests_max=2)) as served:
        silent = [await connect(served.url) for _ in range(5)]
        for _, writer in silent:
            writer.write(a_request(b"", length=100))
        for reader, _ in silent[2:]:
            async with asyncio.timeout(10):
                assert b" 429 " in await reader.readline()
        request = a_request(a_call(1, observer="gw-2").value).replace(TOKEN.encode(), OTHER_TOKEN.encode())
        status, _, _ = await exchange(served.url, request)
        assert status == 202
        for _, writer in silent:
            writer.close()
        await until(lambda: served.room_left_bytes() == INGEST_LIMITS.pending_bytes_max)
        status, _, _ = await served.send(a_call(1).value)
        assert status == 202


async def test_before_its_window_is_restored_nothing_is_taken() -> None:
    """It could not tell what was accepted before."""
    async with serving(is_restored=False) as served:
        assert (await served.send(a_call(1).value))[0] == 503
        assert served.sent.values == {}


@pytest.mark.parametrize("packed", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
async def test_bodies_may_be_compressed(packed: Any) -> None:
    """What is published is what was compressed."""
    name = "gzip" if packed is gzip.compress else "deflate"
    async with serving() as served:
        assert (await served.send(packed(a_call(1).value), f"Content-Encoding: {name}"))[0] == 202
        assert served.sent.of(Role.CALLS) == [a_call(1).value]


async def test_what_was_compressed_takes_the_room_of_what_it_holds() -> None:
    """Otherwise clients that compress would have twice the memory of the others, and of the bound on all."""
    body, tools = a_call(1).value, [{"name": "n" * 1_000}] * 20
    limits = replace(INGEST_LIMITS, client_bytes_max=2 * len(a_list(1, *tools).value) - 1)
    async with serving(limits) as served:
        for large in (
            (a_list(1, *tools).value, ()),
            (gzip.compress(a_list(1, *tools).value), ("Content-Encoding: gzip",)),
        ):
            assert (await served.send(large[0], *large[1]))[0] == 429
        assert (await served.send(gzip.compress(body), "Content-Encoding: gzip"))[0] == 202


BOMB = gzip.compress(b" " * (64 * 2**20))
HOSTILE: dict[str, tuple[bytes, tuple[str, ...], str, int]] = {
    "a bomb": (BOMB, ("Content-Encoding: gzip",), STRUCTURED, 413),
    "half a member": (gzip.compress(a_call(1).value)[:-9], ("Content-Encoding: gzip",), STRUCTURED, 413),
    "two members": (gzip.compress(a_call(1).value) * 2, ("Content-Encoding: gzip",), STRUCTURED, 413),
    "another encoding": (a_call(1).value, ("Content-Encoding: br",), STRUCTURED, 415),
    "two encodings": (a_call(1).value, ("Content-Encoding: gzip", "Content-Encoding: gzip"), STRUCTURED, 415),
    "encodings in one field": (a_call(1).value, ("Content-Encoding: gzip, gzip",), STRUCTURED, 415),
    "no content type": (a_call(1).value, (), "", 415),
    "two content types": (a_call(1).value, (f"Content-Type: {BATCH}",), STRUCTURED, 400),
    "a form": (a_call(1).value, (), "application/x-www-form-urlencoded", 415),
    "plain JSON": (a_call(1).value, (), "application/json", 415),
    "two tokens": (a_call(1).value, (f"Authorization: Bearer {TOKEN}",), STRUCTURED, 401),
    "another host": (a_call(1).value, ("Host: evil.example",), STRUCTURED, 400),
    "two lengths": (a_call(1).value, ("Content-Length: 3",), STRUCTURED, 400),
    "length and chunks": (a_call(1).value, ("Transfer-Encoding: chunked",), STRUCTURED, 400),
    "a broken field name": (a_call(1).value, ("Content-Length : 3",), STRUCTURED, 400),
    "equal keys": (a_call(1).value.replace(b'"id"', b'"id":"x","id"'), (), STRUCTURED, 422),
    "no JSON": (b"\xff\xfe", (), STRUCTURED, 422),
    "no events": (b"[]", (), BATCH, 422),
    "too many events": (b"[" + b"1," * 1_000 + b"1]", (), BATCH, 413),
    "deep": (b"[" * 100_000, (), BATCH, 422),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_requests_get_a_status_and_publish_nothing(name: str) -> None:
    body, fields, kind, expected = HOSTILE[name]
    async with serving() as served:
        status, _, _ = await exchange(served.url, a_request(body, *fields, kind=kind))
        assert status == expected
        assert served.sent.values == {}
        assert (await served.send(a_call(7).value))[0] == 202


async def test_a_hundred_megabytes_are_refused_before_they_are_read() -> None:
    """By the stated length, and without one as soon as there are too many."""
    async with serving() as served:
        status, _, _ = await exchange(served.url, a_request(b"", length=100 * 2**20))
        assert status == 413
        reader, writer = await connect(served.url)
        head = a_request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        writer.write(head)
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        for _ in range(17):
            writer.write(chunk)
        assert (await reader.readuntil(b"\r\n")).split()[1] == b"413"
        writer.close()


async def test_a_slow_client_is_told_so_and_one_that_leaves_costs_nothing() -> None:
    """Half a body, and then silence, or the end of the connection."""
    async with serving(replace(INGEST_LIMITS, read_limit_s=0.2)) as served:
        half = a_request(a_call(1).value)[:-20]
        reader, writer = await connect(served.url)
        writer.write(half)
        assert (await reader.readuntil(b"\r\n")).split()[1] == b"408"
        writer.close()
        _, writer = await connect(served.url)
        writer.write(half)
        await until(lambda: served.room_left_bytes() < INGEST_LIMITS.pending_bytes_max)
        writer.close()
        assert (await served.send(a_call(2).value))[0] == 202
        assert len(served.sent.of(Role.CALLS)) == 1
        await until(lambda: served.room_left_bytes() == INGEST_LIMITS.pending_bytes_max)


async def test_an_event_whose_client_left_is_published_once() -> None:
    async with serving() as served:
        served.sent.answers.clear()
        _, writer = await connect(served.url)
        writer.write(a_request(a_call(1).value))
        await until(lambda: served.writer.pending == 1)
        writer.close()
        await asyncio.sleep(0.05)
        again = asyncio.create_task(served.send(a_call(1).value))
        await asyncio.sleep(0.05)
        served.sent.answers.set()
        assert (await again)[2]["outcomes"] == [{"index": 0, "outcome": "duplicate"}]
        assert len(served.sent.of(Role.CALLS)) == 1


@pytest.mark.parametrize(
    ("start", "status"),
    [
        ("POST /v1/events?x=1 HTTP/1.1", 202),
        ("POST /v2/events HTTP/1.1", 404),
        ("GET /v1/events HTTP/1.1", 405),
        ("OPTIONS /v1/events HTTP/1.1", 405),
    ],
)
async def test_there_is_one_path_and_one_method(start: str, status: int) -> None:
    async with serving() as served:
        request = a_request(a_call(1).value).replace(b"POST /v1/events HTTP/1.1", start.encode())
        assert (await exchange(served.url, request))[0] == status


async def test_another_host_is_not_served_on_loopback() -> None:
    """A page whose name was bound to this address."""
    async with serving() as served:
        request = a_request(a_call(1).value).replace(b"Host: 127.0.0.1", b"Host: evil.example")
        assert (await exchange(served.url, request))[0] == 421


class HeldJudge(EventJudge):
    def __init__(self) -> None:
        super().__init__()
        self.may, self.order = threading.Event(), list[str]()

    def steps(
        self, events: Iterable[bytes], client: KnownClient, judged: list[JudgedEvent], *, now_ms: int
    ) -> Iterator[int]:
        for step_bytes in super().steps(events, client, judged, now_ms=now_ms):
            self.order.append(client.observer_id)
            assert self.may.wait(30)
            yield step_bytes


SHORT_TOOLS = [{"name": f"t{number}"} for number in range(5_000)]


async def test_eight_connections_with_lists_of_short_tools_do_not_hold_up_anothers_call() -> None:
    """Its call is judged after one turn of theirs, however long their lists are and however many wait."""
    judge = HeldJudge()
    body = a_list(1, *SHORT_TOOLS).value
    assert len(body) < 256 * 1_024
    async with serving(judge=judge) as served:
        room_bytes = served.room_left_bytes()
        hostile = [asyncio.create_task(exchange(served.url, a_request(body))) for _ in range(8)]
        await until(lambda: judge.order == ["gw-1"] and served.room_left_bytes() <= room_bytes - 16 * len(body))
        call = a_request(a_call(1, observer="gw-2").value).replace(TOKEN.encode(), OTHER_TOKEN.encode())
        other = asyncio.create_task(exchange(served.url, call))
        await until(lambda: served.room_left_bytes() <= room_bytes - 16 * len(body) - 2 * len(a_call(1).value))
        judge.may.set()
        assert (await other)[0] == 202
        assert [(await each)[0] for each in hostile] == [202] * 8
    steps_per_turn = TURN_BYTES // STEP_BYTES
    assert judge.order.index("gw-2") <= steps_per_turn < len(SHORT_TOOLS)
    assert judge.order.count("gw-1") == 8 * (1 + len(SHORT_TOOLS))


async def test_clients_with_large_bodies_take_turns_and_small_bodies_wait_for_none() -> None:
    judge = HeldJudge()
    large = a_request(b"{" + b" " * 300_000 + a_call(1).value[1:])
    async with serving(judge=judge) as served:
        room_bytes = served.room_left_bytes()
        first = [asyncio.create_task(exchange(served.url, large)) for _ in range(3)]
        await until(lambda: judge.order == ["gw-1"] and served.room_left_bytes() <= room_bytes - 900_000)
        other = asyncio.create_task(exchange(served.url, large.replace(TOKEN.encode(), OTHER_TOKEN.encode())))
        await until(lambda: served.room_left_bytes() <= room_bytes - 1_200_000)
        small = asyncio.create_task(served.send(a_call(1).value))
        await until(lambda: len(judge.order) == 2)
        judge.may.set()
        assert (await small)[0] == 202
        assert [(await each)[0] for each in (*first, other)] == [202, 202, 202, 403]
    assert judge.order == ["gw-1", "gw-1", "gw-2", "gw-1", "gw-1"]


@pytest.mark.parametrize("step_bytes", [0, 1, 1_000, 10**9])
def test_a_turn_ends_after_its_bytes_whatever_the_steps_are(step_bytes: int) -> None:
    """Many short definitions count, and a long one is the last of its turn."""
    steps = iter([step_bytes] * 100_000)
    assert take_turn(steps) is False
    assert 100_000 - len(list(steps)) == math.ceil(TURN_BYTES / (step_bytes + STEP_BYTES))
    assert take_turn(iter([step_bytes])) is (step_bytes < TURN_BYTES - STEP_BYTES)


async def test_a_large_list_does_not_hold_up_other_clients() -> None:
    tools = [{"name": f"tool-{n}", "description": "d" * 2_000, "inputSchema": {"type": "object"}} for n in range(1_000)]
    async with serving() as served:
        large = asyncio.create_task(served.send(a_list(1, *tools).value))
        assert (await served.send(a_call(1).value))[0] == 202
        assert (await large)[0] == 202
        assert len(served.sent.of(Role.SNAPSHOTS)) == 1
