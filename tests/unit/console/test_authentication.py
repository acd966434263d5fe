"""Signing in and out, asked over HTTP: passwords, the word of a proxy, and who else tries."""

import asyncio
import hmac
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from assay_stream.console import identity
from assay_stream.console.authentication import Authenticator, open_authenticator, own_address
from assay_stream.console.deciding import Decide, Publish, decide as decided
from assay_stream.console.identity import Identity, LocalUsers, UserRole, read_users
from assay_stream.console.rendering import HEADERS
from assay_stream.limits import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.observe.http.listener import Listener
from tests.support.console import a_console, of_page, text_of
from tests.support.readmodel import NOW_US
from tests.unit.console.test_posting import Published, approve
from tests.unit.console.test_users import PASSWORD, a_user, users_file

pytestmark = pytest.mark.filterwarnings("ignore::aiohttp.web_exceptions.NotAppKeyWarning")

SECURE = "https://console.example"
WRONG = "a wrong guess"


@asynccontextmanager
async def served(
    fleet: Path,
    *,
    decides: bool = True,
    limits: ConsoleLimits = CONSOLE_LIMITS,
    now: list[int] | None = None,
    publish: Publish | None = None,
    decide: Decide = decided,
    **given: Any,
) -> AsyncIterator[tuple[Any, Authenticator]]:
    clock = [NOW_US] if now is None else now
    identity = Identity.model_validate(given)
    door = open_authenticator(identity, decides=decides, clock=lambda: clock[0], limits=limits)
    listener = Listener(host="192.0.2.1", hosts=frozenset({"console.example"})) if identity.is_secure else None
    try:
        async with a_console(fleet, authenticator=door, publish=publish, decide=decide, listener=listener) as client:
            yield client, door
    finally:
        await door.aclose()


@asynccontextmanager
async def with_users(fleet: Path, folder: Path, **given: Any) -> AsyncIterator[tuple[Any, Authenticator, Path]]:
    path = users_file(folder, a_user(), a_user("victor", UserRole.VIEWER))
    async with served(fleet, local={"users": path}, **given) as (client, door):
        yield client, door, path


async def sign_in(client: Any, name: str = "alice", password: str = PASSWORD, **more: str) -> Any:
    form = {"user": name, "password": password, **more}
    return await client.post("/sign-in", data=form, headers=of_page(client), allow_redirects=False)


async def shown(client: Any, address: str = "/", **headers: str) -> tuple[int, str]:
    async with client.get(address, headers=headers, allow_redirects=False) as answer:
        return answer.status, text_of(await answer.text())


async def token_of(client: Any) -> str:
    async with client.get("/") as answer:
        return str((await answer.text()).partition('name="csrf" value="')[2].partition('"')[0])


def cookies_of(answer: Any) -> Mapping[str, Any]:
    return SimpleCookie("\r\n".join(answer.headers.getall("Set-Cookie", [])))


# With a password


async def test_a_user_signs_in_looks_and_signs_out(fleet: Path, tmp_path: Path) -> None:
    """And comes to the page that was asked for."""
    async with with_users(fleet, tmp_path) as (client, door, _):
        async with client.get("/alerts?state=any&severity=high", allow_redirects=False) as answer:
            assert answer.status == 303
            page = answer.headers["Location"]
        assert page == "/sign-in?next=%2Falerts%3Fstate%3Dany%26severity%3Dhigh"
        async with client.get(page) as answer:
            text = await answer.text()
            assert 'name="next" value="/alerts?state=any&amp;severity=high"' in text
            assert "<nav" not in text  # there is nothing to go to yet
        answer = await sign_in(client, next="/alerts?state=any&severity=high")
        assert (answer.status, answer.headers["Location"]) == (303, "/alerts?state=any&severity=high")
        assert "local:alice Sign out" in (await shown(client, "/alerts"))[1]
        token = await token_of(client)
        async with client.post(
            "/sign-out", data={"csrf": token}, headers=of_page(client), allow_redirects=False
        ) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/sign-in")
        assert len(door.sessions) == 0
        assert (await shown(client))[0] == 303


@pytest.mark.parametrize(
    ("decides", "name", "is_read_only"), [(True, "alice", False), (True, "victor", True), (False, "alice", True)]
)
async def test_a_role_is_what_the_file_says_and_the_console_allows(
    fleet: Path, tmp_path: Path, decides: bool, name: str, is_read_only: bool
) -> None:
    """An operator decides only where the console does."""
    async with with_users(fleet, tmp_path, decides=decides) as (client, _, _):
        await sign_in(client, name)
        assert (f"local:{name} (read-only)" in (await shown(client))[1]) is is_read_only


@pytest.mark.parametrize(
    ("name", "password"),
    [("alice", "guessed"), ("nobody", PASSWORD), ("alice", ""), ("", PASSWORD), ("", ""), ("alice", "x" * 2_000)],
)
async def test_wrong_names_and_passwords_get_one_answer(fleet: Path, tmp_path: Path, name: str, password: str) -> None:
    """Which of the two was wrong is not said, and neither is on the page or in the log."""
    async with with_users(fleet, tmp_path) as (client, door, _):
        async with await sign_in(client, name, password) as answer:
            text = await answer.text()
            assert answer.status == 401
            assert "wrong name or password" in text
            assert not password or password not in text
            assert "Set-Cookie" not in answer.headers
            assert {header: answer.headers[header] for header in HEADERS} == HEADERS
        assert len(door.sessions) == 0


async def test_an_unknown_user_is_checked_as_a_known_one(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    loop = threading.get_ident()

    def check(hashed: str, _: str) -> bool:
        assert threading.get_ident() != loop  # pages are served meanwhile
        checked.append(hashed.rpartition("$")[0].rpartition("$")[0])
        return False

    monkeypatch.setattr(identity, "is_password", check)
    async with with_users(fleet, tmp_path) as (client, _, _):
        for name in ("alice", "nobody"):
            await sign_in(client, name)
    assert len(checked) == 2
    assert checked[0] == checked[1]


async def tried(client: Any, name: str, password: str = WRONG, *, source: str, times: int = 1) -> list[int]:
    headers = {**of_page(client), "X-Forwarded-For": source}
    form = {"user": name, "password": password}
    statuses = []
    for _ in range(times):
        async with client.post("/sign-in", data=form, headers=headers, allow_redirects=False) as answer:
            statuses.append(answer.status)
    return statuses


BEHIND: dict[str, Any] = {"proxies": ["127.0.0.1"]}


async def test_attempts_at_a_name_are_counted(fleet: Path, tmp_path: Path) -> None:
    """Known or not; even the right password has to wait then, and others do not."""
    now = [NOW_US]
    limits = replace(CONSOLE_LIMITS, user_attempts_max=3)
    async with with_users(fleet, tmp_path, limits=limits, now=now) as (client, _, _):
        for name in ("alice", "nobody"):
            statuses = [(await sign_in(client, name, "wrong")).status for _ in range(4)]
            assert statuses == [401, 401, 401, 429]
            assert (await sign_in(client, name)).status == 429
        assert (await sign_in(client, "victor")).status == 303
        now[0] += CONSOLE_LIMITS.sign_in_window_s * 1_000_000
        assert (await sign_in(client)).status == 303


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    looked_at: list[str] = []

    def check(_: str, password: str) -> bool:
        looked_at.append(password)
        return password == PASSWORD

    monkeypatch.setattr("assay_stream.console.identity.is_password", check)
    return looked_at


async def test_a_stranger_locks_nobody_out_by_name(fleet: Path, tmp_path: Path, quick: list[str]) -> None:
    """Whoever knows it uses up the attempts of their own address only."""
    async with with_users(fleet, tmp_path, **BEHIND) as (client, _, _):
        statuses = await tried(client, "alice", source="192.0.2.66", times=30)
        assert statuses == [401] * 10 + [429] * 20
        assert await tried(client, "alice", PASSWORD, source="192.0.2.1") == [303]
    assert len(quick) == 11


@pytest.mark.parametrize("form", ["192.0.2.{}:49152", "[2001:db8:0:{}::1]:49152", "[2001:db8:0:{}::1]"])
async def test_hops_with_ports_are_sources_of_their_own(
    fleet: Path, tmp_path: Path, quick: list[str], form: str
) -> None:
    """However the proxy writes them: the wrong passwords of one client keep no other one out."""
    async with with_users(fleet, tmp_path, **BEHIND) as (client, _, _):
        for number in range(6):
            statuses = await tried(client, f"n{number}", source=form.format(66), times=10)
            assert statuses == ([401] * 10 if number < 5 else [429] * 10)
        assert await tried(client, "alice", PASSWORD, source=form.format(1)) == [303]
    assert len(quick) == 51


async def test_the_proxy_is_known_by_hops_with_ports(fleet: Path, tmp_path: Path, quick: list[str]) -> None:
    async with with_users(fleet, tmp_path, proxies=["127.0.0.1", "10.0.0.0/8", "fd00::/8"]) as (client, _, _):
        for number, proxy in enumerate(("10.0.0.2:443", "[fd00::1]:443", "[fd00::1]")):
            source = f"192.0.2.66:1, {proxy}"
            assert (
                await tried(client, "alice", source=source, times=4)
                == [401] * (4, 4, 2)[number] + [429] * (0, 0, 2)[number]
            )
        assert await tried(client, "alice", PASSWORD, source="192.0.2.1:1, 10.0.0.2:443") == [303]


async def test_a_browser_that_signed_somebody_in_is_not_kept_out(fleet: Path, tmp_path: Path, quick: list[str]) -> None:
    """By nobody: not where all sources count as one, and not by many sources that guess together."""
    now = [NOW_US]
    async with with_users(fleet, tmp_path, now=now, **BEHIND) as (client, _, _):
        device = cookies_of(await sign_in(client))["assay-stream-device"]
        assert (device["httponly"], device["samesite"], device["max-age"]) == (True, "Lax", str(90 * 24 * 3_600))
        now[0] += CONSOLE_LIMITS.sign_in_window_s * 1_000_000
        client.session.cookie_jar.clear()
        for number in range(20):
            await tried(client, "alice", source=f"198.51.100.{number}", times=10)
            await tried(client, f"n{number}", source="unknown", times=5)
        assert len(quick) == 1 + 100 + 50  # of one name from strangers, and of one source
        assert await tried(client, "alice", PASSWORD, source="203.0.113.1") == [429]
        home = client.make_url("/")
        for value in (device.value[:-1], f"x{device.value}", device.value.partition(".")[0], "\xff", "."):
            client.session.cookie_jar.update_cookies({"assay-stream-device": value}, home)
            assert await tried(client, "alice", PASSWORD, source="unknown") == [429]
        client.session.cookie_jar.update_cookies({"assay-stream-device": device.value}, home)
        assert await tried(client, "victor", PASSWORD, source="unknown") == [429]  # it is Alice's
        assert await tried(client, "alice", source="unknown", times=9) == [401] * 9
        assert await tried(client, "alice", PASSWORD, source="unknown") == [303]
        client.session.cookie_jar.update_cookies({"assay-stream-device": device.value}, home)
        assert await tried(client, "alice", source="unknown", times=2) == [401, 429]


async def test_a_flood_from_everywhere_leaves_known_browsers_their_attempts(fleet: Path, tmp_path: Path) -> None:
    """Counters are shared by many names; strangers fill none that a known browser has."""
    async with with_users(fleet, tmp_path) as (client, door, _):
        await sign_in(client)
        assert isinstance(door.backend, LocalUsers)
        throttle = door.backend._throttle
        throttle._window = NOW_US // (CONSOLE_LIMITS.sign_in_window_s * 1_000_000)
        throttle._counts = [1_000] * 16_384 + [0] * 16_384
        assert (await sign_in(client, "victor")).status == 429
        assert (await sign_in(client)).status == 303


async def test_a_new_password_makes_every_browser_a_stranger(fleet: Path, tmp_path: Path) -> None:
    """What a browser keeps is worth as much as the password that it was given for."""
    async with with_users(fleet, tmp_path, limits=replace(CONSOLE_LIMITS, source_attempts_max=1)) as (client, _, path):
        await sign_in(client)
        users_file(path.parent, a_user(), a_user("victor", UserRole.VIEWER))
        assert [(await sign_in(client, password="wrong")).status for _ in range(2)] == [401, 429]


async def test_an_attempt_that_was_not_looked_at_does_not_count(fleet: Path, tmp_path: Path) -> None:
    """Somebody who keeps the console busy uses up nobody's attempts."""
    limits = replace(CONSOLE_LIMITS, hashing_max=0, user_attempts_max=2)
    async with with_users(fleet, tmp_path, limits=limits) as (client, _, _):
        assert [(await sign_in(client)).status for _ in range(4)] == [503] * 4
        assert "console_busy" in await (await sign_in(client)).text()


async def test_attempts_of_a_source_are_counted(fleet: Path, tmp_path: Path) -> None:
    """Whatever names it tries; a proxy says which source it is, a client does not."""
    limits = replace(CONSOLE_LIMITS, source_attempts_max=2)
    async with with_users(fleet, tmp_path, limits=limits) as (client, _, _):
        for n, status in enumerate((401, 401, 429)):
            assert await tried(client, f"n{n}", source=f"192.0.2.{n}") == [status]
    async with with_users(fleet, tmp_path, limits=limits, proxies=["127.0.0.1", "10.0.0.0/8"]) as (client, _, _):
        for n, status in enumerate((401, 401, 429)):
            assert await tried(client, f"n{n}", source=f"forged-{n}, 192.0.2.1, 10.0.0.2") == [status]
        assert await tried(client, "n4", source="192.0.2.1, 192.0.2.2") == [401]
        assert await tried(client, "n5", source="") == [401]


async def test_signing_in_begins_a_session_under_a_new_id(fleet: Path, tmp_path: Path) -> None:
    """An id that somebody planted in the browser is no session, before and after (fixation)."""
    async with with_users(fleet, tmp_path) as (client, _, _):
        home = client.make_url("/")
        client.session.cookie_jar.update_cookies({"assay-stream": "planted"}, home)
        answer = await sign_in(client)
        first = cookies_of(answer)["assay-stream"].value
        assert first != "planted"
        answer = await sign_in(client, "victor")
        second = cookies_of(answer)["assay-stream"].value
        for session_id, who in ((second, "local:victor"), (first, None), ("planted", None)):
            client.session.cookie_jar.update_cookies({"assay-stream": session_id}, home)
            status, text = await shown(client)
            assert (status, who is not None and who in text) == ((200, True) if who else (303, False))


async def test_cookies_are_for_this_host_over_tls_only(fleet: Path, tmp_path: Path) -> None:
    """Out of the reach of scripts and of other sites' forms; plain HTTP only on this machine."""
    async with with_users(fleet, tmp_path) as (client, _, _):
        cookie = cookies_of(await sign_in(client))["assay-stream"]
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/")
        assert (cookie["secure"], cookie["domain"], cookie["max-age"]) == ("", "", "")
    async with with_users(fleet, tmp_path, address=SECURE) as (client, _, _):
        headers = {"Host": "console.example", "Origin": SECURE}
        data = {"user": "alice", "password": PASSWORD}
        async with client.post("/sign-in", data=data, headers=headers, allow_redirects=False) as answer:
            assert answer.status == 303
            cookie = cookies_of(answer)["__Host-assay-stream"]
            assert (cookie["secure"], cookie["httponly"], cookie["samesite"]) == (True, True, "Lax")
            assert (cookie["path"], cookie["domain"], cookie["max-age"]) == ("/", "", "")
        headers["Cookie"] = f"assay-stream={cookie.value}"  # under a name that other hosts of the domain can set
        assert (await shown(client, **headers))[0] == 303
        headers["Cookie"] = f"__Host-assay-stream={cookie.value}"
        assert (await shown(client, **headers))[0] == 200


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {}])
async def test_another_site_cannot_sign_somebody_in_or_out(
    fleet: Path, tmp_path: Path, headers: dict[str, str]
) -> None:
    """Nor a client that does not say what site its form is from."""
    async with with_users(fleet, tmp_path) as (client, door, _):
        form = {"user": "alice", "password": PASSWORD}
        async with client.post("/sign-in", data=form, headers=headers, allow_redirects=False) as answer:
            assert answer.status in (401, 403)
            assert "Set-Cookie" not in answer.headers
        await sign_in(client)
        token = await token_of(client)
        async with client.post("/sign-out", data={"csrf": token}, headers=headers) as answer:
            assert answer.status == 403
        async with client.post("/sign-out", data={"csrf": "wrong"}, headers=of_page(client)) as answer:
            assert answer.status == 403
        assert len(door.sessions) == 1
        client.session.cookie_jar.clear()  # as a browser that leaves a lax cookie out of another site's form
        async with client.post("/sign-out", data={"csrf": "x"}, headers=headers, allow_redirects=False) as answer:
            assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)


@pytest.mark.parametrize(
    ("asked", "shown_next"),
    [
        ("/alerts?state=any", "/alerts?state=any"),
        ("/tool?server=a%26b&tool=%E2%80%AE", "/tool?server=a%26b&tool=%E2%80%AE"),
        ("https://evil.example/alerts", "/"),
        ("//evil.example/alerts", "/"),
        ("/\\evil.example", "/"),
        ("\\\\evil.example", "/"),
        ("/sign-out", "/"),
        ("/nowhere", "/"),
        ("alerts", "/"),
        ("/alerts\r\nSet-Cookie: a=b", "/"),
        ("/alerts?a=\r\nb", "/alerts?a=b"),
        ("http://[", "/"),
        ("javascript:alert(1)", "/"),
        ("/alerts#//evil", "/alerts"),
        ("/confirm?act=approve&server=s&reason=fine", "/reviews"),
        ("/alert?uid=1&act=approve&recorded=1", "/alert?uid=1&act=approve"),
        ("", "/"),
        (None, "/"),
    ],
)
async def test_signing_in_leads_to_pages_of_the_console_only(
    fleet: Path, tmp_path: Path, asked: str | None, shown_next: str
) -> None:
    assert own_address(asked) == shown_next
    async with with_users(fleet, tmp_path) as (client, _, _):
        more = {} if asked is None else {"next": asked}
        assert (await sign_in(client, **more)).headers["Location"] == shown_next
        address = URL("/sign-in").with_query(more)
        async with client.get(address) as answer:
            assert "evil" not in await answer.text()


async def test_a_user_who_is_removed_or_changed_is_out_at_once(fleet: Path, tmp_path: Path) -> None:
    """With another role or password, or none."""
    async with with_users(fleet, tmp_path) as (client, _, path):
        for change in ((), (a_user(role=UserRole.VIEWER),), (a_user(password="another password"),)):
            users_file(tmp_path, a_user())
            assert (await sign_in(client)).status == 303
            assert (await shown(client))[0] == 200
            users_file(tmp_path, *change)
            assert (await shown(client))[0] == 303, path


async def test_two_browsers_have_sessions_of_their_own(fleet: Path, tmp_path: Path) -> None:
    """Signing out of one leaves the other."""
    async with with_users(fleet, tmp_path) as (client, door, _):
        first = cookies_of(await sign_in(client))["assay-stream"].value
        client.session.cookie_jar.clear()
        await sign_in(client)
        token = await token_of(client)
        await client.post("/sign-out", data={"csrf": token}, headers=of_page(client))
        client.session.cookie_jar.update_cookies({"assay-stream": first}, client.make_url("/"))
        assert (await shown(client))[0] == 200
        assert len(door.sessions) == 1


async def test_a_page_that_updates_itself_does_not_keep_its_session(fleet: Path, tmp_path: Path) -> None:
    now, idle_us = [NOW_US], CONSOLE_LIMITS.session_idle_s * 1_000_000
    async with with_users(fleet, tmp_path, now=now) as (client, _, _):
        await sign_in(client)
        now[0] += idle_us // 2
        assert (await shown(client, **{"Sec-Fetch-Dest": "empty"}))[0] == 200
        now[0] += idle_us // 2
        assert (await shown(client))[0] == 303


async def test_no_secret_is_in_a_page_or_the_log(fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither passwords nor hashes, nor ids of sessions."""
    with caplog.at_level(logging.DEBUG):
        async with with_users(fleet, tmp_path) as (client, _, path):
            await sign_in(client, "alice", "a wrong password")
            session_id = cookies_of(await sign_in(client))["assay-stream"].value
            texts = [await (await client.get(address)).text() for address in ("/", "/sign-in", "/nowhere", "/health")]
            for secret in (
                PASSWORD,
                "a wrong password",
                session_id,
                *(user.hash for user in read_users(path).values()),
            ):
                assert secret not in "".join(texts) + caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/sign-in/start", 404),
        ("GET", "/sign-in/callback", 404),
        ("POST", "/sign-in/start", 404),
        ("GET", "/sign-out", 303),
    ],
)
async def test_what_belongs_to_another_way_is_not_there(
    fleet: Path, tmp_path: Path, method: str, path: str, status: int
) -> None:
    async with with_users(fleet, tmp_path) as (client, _, _):
        answer = await client.request(method, path, headers=of_page(client), allow_redirects=False)
        assert answer.status == status
        assert answer.headers.get("Location", "/sign-in?next=%2F") == "/sign-in?next=%2F"


@pytest.mark.parametrize("address", ["/", "/sign-in", "/sign-out", "/nowhere"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_every_answer_forbids_frames_and_scripts(fleet: Path, tmp_path: Path, method: str, address: str) -> None:
    """Those that lead elsewhere, or refuse, too."""
    async with with_users(fleet, tmp_path) as (client, _, _):
        for headers in ({}, of_page(client)):
            answer = await client.request(method, address, headers=headers, allow_redirects=False)
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS


async def test_secrets_are_compared_in_constant_time(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token of a form, and what a proxy shows."""
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    async with with_users(fleet, tmp_path) as (client, _, _):
        await sign_in(client)
        token = await token_of(client)
        await client.post("/sign-out", data={"csrf": "wrong"}, headers=of_page(client))
        assert token.encode() in compared
    monkeypatch.setenv("CONSOLE_SECRET", "shared")
    async with served(fleet, proxy=PROXY | {"secret_header": "X-Secret", "secret_env": "CONSOLE_SECRET"}) as (
        client,
        _,
    ):
        await shown(client, **{"X-User": "victor", "X-Secret": "wrong"})
        assert b"shared" in compared


async def test_who_signs_in_and_from_where_is_logged(
    fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An attempt that was refused too, without what was typed in for a name: it may be a password."""
    with caplog.at_level(logging.INFO, "assay_stream"):
        async with with_users(fleet, tmp_path) as (client, _, _):
            await sign_in(client, PASSWORD, "alice")
            await sign_in(client)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("assay_stream")] == [
        "a sign-in from 127.0.0.1 was refused: sign_in_refused",
        "local:alice signed in from 127.0.0.1",
    ]


# By the word of a proxy

PROXY: dict[str, Any] = {
    "user_header": "X-User",
    "groups_header": "X-Groups",
    "groups_format": ",",
    "operator_groups": ["soc"],
    "viewers": ["victor"],
}


async def test_a_proxy_says_who_it_is(fleet: Path) -> None:
    """With each request; a session is begun for its forms, and again when somebody else comes."""
    async with served(fleet, proxies=["127.0.0.0/8"], proxy=PROXY) as (client, door):
        assert "proxy:alice" in (await shown(client, **{"X-User": "alice", "X-Groups": "staff,soc"}))[1]
        assert len(door.sessions) == 1
        status, text = await shown(client, **{"X-User": "alice", "X-Groups": "soc"})
        assert (status, len(door.sessions), "Sign out" in text) == (200, 1, False)
        assert "proxy:victor (read-only)" in (await shown(client, **{"X-User": "victor"}))[1]
        assert "proxy:alice" not in (await shown(client, **{"X-User": "victor"}))[1]
        assert len(door.sessions) == 1
        status, text = await shown(client, **{"X-User": "mallory", "X-Groups": "staff"})
        assert (status, "may_not_look" in text) == (403, True)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("X-User", "")],
        [("X-User", "alice"), ("X-User", "victor")],
        [("X-User", "victor"), ("X-Groups", "staff"), ("X-Groups", "soc")],
        [("X-User", "victor\u202e")],
        [("X-User", "v" * 201)],
    ],
)
async def test_an_unclear_word_of_the_proxy_is_refused(fleet: Path, headers: list[tuple[str, str]]) -> None:
    """Missing, twice (one of the two could be the client's), or no name."""
    async with served(fleet, proxies=["127.0.0.1"], proxy=PROXY) as (client, door):
        async with client.get("/", headers=headers) as answer:
            assert answer.status == 403
            assert "identity_refused" in await answer.text()
        assert len(door.sessions) == 0


async def test_a_list_of_groups_is_not_split_at_commas_unless_the_file_says_so(fleet: Path) -> None:
    """A directory has groups with commas in their names; whoever sets the console up is told what to set."""
    table = {name: value for name, value in PROXY.items() if name != "groups_format"}
    async with served(fleet, proxies=["127.0.0.1"], proxy=table) as (client, _):
        status, text = await shown(client, **{"X-User": "alice", "X-Groups": "CN=my,soc,DC=example"})
        assert (status, "groups_format" in text) == (403, True)


@pytest.mark.parametrize(
    ("form", "sent", "status"),
    [
        ("json", ['["CN=my,soc,DC=example"]'], 403),
        ("json", ['["staff", "soc"]'], 200),
        ("json", ['["s\\u006fc"]'], 200),
        ("json", ["staff,soc"], 403),
        ("json", ['"soc"'], 403),
        ("json", ['{"soc": "soc"}'], 403),
        ("json", ['[["soc"]]'], 403),
        ("json", ['["soc"]', '["soc"]'], 403),
        ("json", ["[" * 4_000], 403),
        ("json", [""], 403),
        ("headers", ["CN=my,soc,DC=example"], 403),
        ("headers", ["staff", "soc"], 200),
        ("headers", ["staff,soc"], 403),
        ("|", ["CN=my,soc,DC=example|staff"], 403),
        ("|", ["CN=my,soc,DC=example|soc"], 200),
        ("|", ["a|b", "soc"], 403),
        (", ", ["staff, soc"], 200),
        (", ", ["staff,soc"], 403),
        (",", ["staff, soc"], 403),
        (",", ["CN=my\\,soc"], 403),
        (",", ["CN=my\\,soc,soc"], 200),
        (".", ["staffXsoc"], 403),
    ],
)
async def test_a_group_whose_name_holds_another_makes_nobody_an_operator(
    fleet: Path, form: str, sent: list[str], status: int
) -> None:
    """Names are what the proxy states; how it lists them is what the file says, never guessed."""
    table = PROXY | {"groups_format": form}
    async with served(fleet, proxies=["127.0.0.1"], proxy=table) as (client, _):
        headers = [("X-User", "alice"), *(("X-Groups", each) for each in sent)]
        async with client.get("/", headers=headers) as answer:
            assert answer.status == status


async def test_a_header_from_elsewhere_is_forged(fleet: Path) -> None:
    """Whatever else the client sends; the style sheet and the sign-in page of other ways say nothing."""
    async with served(fleet, proxies=["10.0.0.1"], proxy=PROXY) as (client, _):
        for more in ({}, {"X-Forwarded-For": "10.0.0.1"}, {"Forwarded": "for=10.0.0.1"}):
            for address in ("/", "/events", "/sign-in", "/sign-out"):
                status, text = await shown(client, address, **{"X-User": "alice", "X-Groups": "soc", **more})
                assert (status, "identity_refused" in text) == (403, True), address


async def test_a_shared_secret_shows_that_it_is_the_proxy(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, whole, and from its address where that is given too."""
    monkeypatch.setenv("CONSOLE_SECRET", "planted-secret")
    table = PROXY | {"secret_header": "X-Secret", "secret_env": "CONSOLE_SECRET"}
    user = ("X-User", "victor")
    async with served(fleet, proxy=table) as (client, _):
        for sent, status in (
            (["planted-secret"], 200),
            ([], 403),
            (["planted-secre"], 403),
            (["planted-secret", "planted-secret"], 403),
            (["é"], 403),
        ):
            headers = [user, *(("X-Secret", each) for each in sent)]
            async with client.get("/", headers=headers) as answer:
                assert answer.status == status
                assert "planted" not in await answer.text()
    async with served(fleet, proxies=["10.0.0.1"], proxy=table) as (client, _):
        assert (await shown(client, **{"X-User": "victor", "X-Secret": "planted-secret"}))[0] == 403


async def test_a_header_is_given_twice_however_it_is_written(fleet: Path) -> None:
    """Small letters make it no other header."""
    async with served(fleet, proxies=["127.0.0.1"], proxy=PROXY) as (client, _):
        url = client.make_url("/")
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(f"GET / HTTP/1.1\r\nHost: {url.host}\r\nX-User: victor\r\nx-uSER: victor\r\n\r\n".encode())
        assert b" 403 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_a_form_needs_its_session_behind_a_proxy_too(fleet: Path) -> None:
    """The proxy's word alone would let any site post forms; the page that says so holds the form of a new session."""
    published = Published()
    more: dict[str, Any] = {"publish": published, "decide": approve}
    async with served(fleet, proxies=["127.0.0.1"], proxy=PROXY, **more) as (client, _):
        headers = {**of_page(client), "X-User": "alice", "X-Groups": "soc"}
        form = {"server": "server-0", "reason": "why"}
        async with client.post("/decide", data=form, headers=headers) as answer:
            text = await answer.text()
            assert answer.status == 403
            assert published.got == []
        form["csrf"] = text.partition('name="csrf" value="')[2].partition('"')[0]
        async with client.post("/decide", data=form, headers=headers | {"X-User": "bob"}) as answer:
            assert answer.status == 403  # the session is Alice's
        assert published.got == []
        async with client.post("/decide", data=form, headers=headers, allow_redirects=False) as answer:
            assert answer.status == 403  # and it ended when Bob came
            text = await answer.text()
        form["csrf"] = text.partition('name="csrf" value="')[2].partition('"')[0]
        async with client.post("/decide", data=form, headers=headers, allow_redirects=False) as answer:
            assert answer.status == 303
        assert [author for _, author in published.got] == ["proxy:alice"]
