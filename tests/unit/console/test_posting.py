"""Forms on their way to Kafka: from whom, and what becomes of those that do not get through."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_stream.console.authentication import Authenticator
from assay_stream.console.deciding import Form
from assay_stream.console.identity import Identity
from assay_stream.console.sessions import Operator, Sessions
from assay_stream.errors import AssayStreamError, InputError, OperatingError
from assay_stream.limits import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.observe.http.listener import Listener
from assay_stream.readmodel.queries import Store
from assay_stream.report.pins import Decision
from tests.support.console import ALICE, VICTOR, a_console, of_page, signed_in, text_of
from tests.support.readmodel import NOW_US

pytestmark = pytest.mark.filterwarnings("ignore::aiohttp.web_exceptions.NotAppKeyWarning")

DATA = {"server_id": "server-0", "reason": "seen with its vendor"}


class Published:
    def __init__(self) -> None:
        self.got: list[tuple[Sequence[Decision], str]] = []
        self.error: Exception | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.began = asyncio.Event()

    async def __call__(self, decisions: Sequence[Decision], author: str) -> None:
        self.began.set()
        await self.goes_on.wait()
        if self.error is not None:
            raise self.error
        self.got.append((decisions, author))


def approve(store: Store, form: Form) -> tuple[Sequence[Decision], str]:
    server_id = form.name("server")
    if store.server(server_id, now_us=form.now_us) is None:
        raise InputError("server_not_known", "no such server")
    data = {"server_id": server_id, "reason": form.reason()}
    return [("com.example.approve", data)], "/server?server=server-0"


@asynccontextmanager
async def a_desk(
    folder: Path, operator: Operator | None = ALICE, *, limits: ConsoleLimits = CONSOLE_LIMITS
) -> AsyncIterator[tuple[Any, Authenticator, Published, dict[str, str]]]:
    """A console that decides: its browser, its door, what it publishes, and a form that is filled in."""
    door, published = Authenticator(Sessions(lambda: NOW_US)), Published()
    async with a_console(folder, authenticator=door, publish=published, decide=approve, limits=limits) as client:
        form = {"server": "server-0", "reason": "seen with its vendor"}
        if operator is not None:
            form["csrf"] = signed_in(client, door, operator)
        yield client, door, published, form


async def post(client: Any, form: Any, *, address: str = "/decide", **headers: str) -> tuple[int, str, str]:
    """Status, text and next address of a form that is posted by a page of the console's own."""
    sent = {name: value for name, value in {**of_page(client), **headers}.items() if value}
    async with client.post(address, data=form, headers=sent, allow_redirects=False) as answer:
        return answer.status, text_of(await answer.text()), answer.headers.get("Location", "")


async def test_a_decision_is_published_before_the_next_page_is_shown(fleet: Path) -> None:
    """By the name with which the operator signed in."""
    async with a_desk(fleet) as (client, _, published, form):
        published.goes_on.clear()
        posted = asyncio.create_task(post(client, form))
        await asyncio.wait_for(published.began.wait(), 10)
        assert not posted.done()
        published.goes_on.set()
        status, _, address = await posted
        assert (status, address) == (303, "/server?server=server-0")
        assert published.got == [([("com.example.approve", DATA)], "local:alice")]


async def test_who_is_signed_in_is_on_each_page(fleet: Path) -> None:
    """With a way out; forms need the right to decide."""
    async with a_desk(fleet) as (client, door, _, _):
        for operator, sentence in ((ALICE, "local:alice Sign out"), (VICTOR, "local:victor (read-only) Sign out")):
            signed_in(client, door, operator)
            for address in ("/", "/alerts", "/nowhere", "/record"):
                assert sentence in text_of(await (await client.get(address)).text())


async def test_nobody_looks_without_a_session(fleet: Path) -> None:
    """Neither at pages nor at events; the style sheet is no secret."""
    async with a_desk(fleet, None) as (client, _, _, _):
        for address in ("/", "/alerts", "/events", "/nowhere"):
            answer = await client.get(address)
            assert answer.status == 401, address
            assert "server-0" not in await answer.text()
        assert (await client.get("/static/console.css")).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://[", "Sec-Fetch-Site": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "", "Sec-Fetch-Site": ""},
        {"Origin": "", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"},
    ],
)
async def test_a_form_of_another_site_is_refused(fleet: Path, headers: dict[str, str]) -> None:
    """Even with the session and its token: a browser that does not say where a form is from is not believed."""
    async with a_desk(fleet) as (client, _, published, form):
        status, text, _ = await post(client, form, **headers)
        assert status == 403
        assert "Send again" not in text
        assert published.got == []


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": ""}, {"Origin": ""}])
async def test_one_word_of_the_browser_is_enough(fleet: Path, headers: dict[str, str]) -> None:
    """Old browsers send one of the two headers."""
    async with a_desk(fleet) as (client, _, _, form):
        assert (await post(client, form, **headers))[0] == 303


async def test_behind_tls_the_origin_is_that_of_the_address(fleet: Path) -> None:
    """Not that of the request, which the proxy made."""
    given = {"address": "https://console.example", "local": {"users": "users"}}
    door, published = Authenticator(Sessions(lambda: NOW_US), identity=Identity.model_validate(given)), Published()
    listener = Listener(host="192.0.2.1", hosts=frozenset({"console.example"}))
    async with a_console(fleet, authenticator=door, publish=published, decide=approve, listener=listener) as client:
        session_id = door.sessions.begin(ALICE)
        session = door.sessions.find(session_id)
        assert session is not None
        form = {"server": "server-0", "reason": "why", "csrf": session.csrf_token}
        for cookie, origin, status in (
            ("__Host-assay-stream", "https://console.example", 303),
            ("__Host-assay-stream", "https://console.example:443", 303),
            ("__Host-assay-stream", "http://console.example", 403),
            ("__Host-assay-stream", "https://console.example:8443", 403),
            ("assay-stream", "https://console.example", 401),  # a cookie that another host of the domain could set
        ):
            headers = {"Host": "console.example", "Cookie": f"{cookie}={session_id}"}
            assert (await post(client, form, Origin=origin, **headers))[0] == status, (cookie, origin)


async def test_a_form_without_the_sessions_token_is_refused(fleet: Path) -> None:
    """Missing, wrong, twice, or that of another session of the same operator; what was entered is shown again."""
    async with a_desk(fleet) as (client, door, published, form):
        old = form["csrf"]
        token = signed_in(client, door)
        wrong = "".join(reversed(token))
        for tokens in ([], [""], [wrong], [old], [token, token], ["é"], [token + "x"]):
            fields = [("server", "server-0"), ("reason", "seen with its vendor"), *(("csrf", each) for each in tokens)]
            status, text, _ = await post(client, fields)
            assert status == 403
            assert "form_outdated" in text
            assert "seen with its vendor" in text
        assert published.got == []


async def test_a_form_that_was_sent_again_gets_through(fleet: Path) -> None:
    """Its page holds what was entered, with the token of the session of now."""
    async with a_desk(fleet) as (client, door, published, form):
        token = signed_in(client, door)
        async with client.post("/decide", data=form, headers=of_page(client)) as answer:
            page = await answer.text()
        assert f'name="csrf" value="{token}"' in page
        assert form["csrf"] not in page
        assert '<input type="hidden" name="server" value="server-0">' in page
        assert "seen with its vendor</textarea>" in page
        assert (await post(client, form | {"csrf": token}))[0] == 303
        assert published.got == [([("com.example.approve", DATA)], "local:alice")]


async def test_a_session_that_ends_while_a_form_is_filled_in_loses_nothing(fleet: Path) -> None:
    """The reason is shown again, and how to go on."""
    async with a_desk(fleet) as (client, door, published, form):
        client.session.cookie_jar.clear()
        status, text, _ = await post(client, form | {"reason": "typed for a long time <b>"})
        assert status == 401
        assert "Nothing was recorded" in text
        assert "typed for a long time <b>" in text
        assert "Sign in, in another window" in text
        assert form["csrf"] not in text
        assert published.got == []
        token = signed_in(client, door)
        again = await post(client, {name: value for name, value in form.items() if name != "csrf"})
        assert (again[0], "Send again" in again[1]) == (403, True)  # to be looked at, with the new session's token
        assert (await post(client, form | {"csrf": token}))[0] == 303


async def test_no_action_is_carried_out_for_somebody_who_may_not(fleet: Path) -> None:
    """What the console itself decides: for nobody, a viewer, a form of another site, one without its token."""
    door, published = Authenticator(Sessions(lambda: NOW_US)), Published()
    fields = {"act": "acknowledge", "subject": '["server-0", "", "", "0"]', "reason": "why"}
    async with a_console(fleet, authenticator=door, publish=published) as client:
        assert (await post(client, fields))[0] == 401
        tries: list[tuple[Operator, bool, dict[str, str]]] = [
            (VICTOR, True, {}),
            (ALICE, False, {}),
            (ALICE, True, {"Origin": "https://evil.example"}),
            (ALICE, True, {"Sec-Fetch-Site": "cross-site"}),
        ]
        for operator, has_token, headers in tries:
            csrf = signed_in(client, door, operator)
            form = fields | ({"csrf": csrf} if has_token else {})
            assert (await post(client, form, **headers))[0] == 403, (operator, has_token, headers)
        assert published.got == []


async def test_who_may_only_look_decides_nothing(fleet: Path) -> None:
    async with a_desk(fleet, VICTOR) as (client, _, published, form):
        status, text, _ = await post(client, form)
        assert (status, "may_not_decide" in text, "Send again" in text) == (403, True, False)
        assert published.got == []


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({"reason": ""}, "bad_form"),
        ({"server": ""}, "bad_form"),
        ({"server": "nobody"}, "server_not_known"),
        ({"reason": "x" * 300}, "bad_form"),
        ({"reason": "x" * 3_000}, "bad_form"),
    ],
)
async def test_a_form_that_is_wrong_says_why(fleet: Path, form: dict[str, str], code: str) -> None:
    """And records nothing; one that is too long is not read to its end."""
    few = replace(CONSOLE_LIMITS, form_bytes_max=200)
    async with a_desk(fleet, limits=few) as (client, _, published, filled):
        status, text, _ = await post(client, filled | form)
        assert (status, code in text, "Nothing was recorded" in text) == (400, True, True)
        assert published.got == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/x-www-form-urlencoded", "Content-Encoding": "gzip"},
    ],
)
async def test_only_forms_are_read(fleet: Path, headers: dict[str, str]) -> None:
    """What else a body may be is refused unread."""
    async with a_desk(fleet) as (client, _, published, _):
        async with client.post("/decide", data=b"x=1", headers={**of_page(client), **headers}) as answer:
            assert answer.status == 400
            assert "bad_form" in await answer.text()
        assert published.got == []


async def test_a_form_that_does_not_arrive_is_given_up(fleet: Path) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield b"server=server-0&"
        await asyncio.sleep(10)

    async with a_desk(fleet, limits=replace(CONSOLE_LIMITS, form_limit_s=0.05)) as (client, _, _, _):
        headers = {**of_page(client), "Content-Type": "application/x-www-form-urlencoded"}
        async with asyncio.timeout(5):
            answer = await client.post("/decide", data=slowly(), headers=headers)
            assert answer.status == 400


@pytest.mark.parametrize(
    ("error", "status", "title"),
    [
        (OperatingError("broker_unreachable", "no broker answers"), 503, "Nothing was recorded"),
        (OperatingError("not_delivered", "1 of 1 events were not delivered"), 503, "It may not have been recorded"),
        (InputError("lone_surrogate", "not Unicode"), 400, "Nothing was recorded"),
        (ValueError("planted-secret"), 500, "It may not have been recorded"),
    ],
)
async def test_a_decision_that_did_not_reach_kafka_is_kept_for_another_try(
    fleet: Path, error: Exception, status: int, title: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The page says whether it is certain that nothing was recorded, and quotes no failure of ours."""
    async with a_desk(fleet) as (client, _, published, form):
        published.error = error
        got, text, _ = await post(client, form)
        assert (got, title in text, "Send again" in text, "seen with its vendor" in text) == (status, True, True, True)
        assert "planted-secret" not in text + caplog.text
        if isinstance(error, AssayStreamError):
            assert error.code in text
        published.error = None
        assert (await post(client, form))[0] == 303


async def test_a_decision_is_carried_out_even_if_its_browser_goes(fleet: Path) -> None:
    async with a_desk(fleet) as (client, _, published, form):
        published.goes_on.clear()
        posted = asyncio.create_task(post(client, form))
        await asyncio.wait_for(published.began.wait(), 10)
        posted.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await posted
        await asyncio.sleep(0.05)
        published.goes_on.set()
        async with asyncio.timeout(5):
            while not published.got:
                await asyncio.sleep(0.01)


async def test_a_console_that_does_not_decide_takes_no_form(fleet: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever is signed in; an address that is no form's is not found where it does."""
    door = Authenticator(Sessions(lambda: NOW_US))
    async with a_console(fleet, authenticator=door) as client:
        token = signed_in(client, door)
        assert (await post(client, {"csrf": token}))[0] == 404
    async with a_desk(fleet) as (client, _, published, form):
        for address, status in (("/", 405), ("/alerts", 405), ("/nowhere", 404), ("/decide/", 404)):
            assert (await post(client, form, address=address))[0] == status
        assert (await client.get("/decide")).status == 405
        assert published.got == []
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
