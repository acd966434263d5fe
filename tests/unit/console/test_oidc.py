"""Signing in by the word of an OpenID Connect provider, and of those that pretend to be it."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import OctKey

from assay_stream.console.authentication import Authenticator
from assay_stream.limits import CONSOLE_LIMITS, ConsoleLimits
from tests.support.console import text_of
from tests.support.deployment import free_port
from tests.support.oidc import CLIENT_ID, NOW_S, SECRET, Provider, a_key, a_provider
from tests.support.readmodel import NOW_US
from tests.unit.console.test_authentication import cookies_of, served, shown

pytestmark = pytest.mark.filterwarnings("ignore::aiohttp.web_exceptions.NotAppKeyWarning")


@asynccontextmanager
async def provided(
    fleet: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    now: list[int] | None = None,
    limits: ConsoleLimits = CONSOLE_LIMITS,
    **table: Any,
) -> AsyncIterator[tuple[Any, Authenticator, Provider]]:
    monkeypatch.setenv("CONSOLE_CLIENT", SECRET)
    async with a_provider() as provider:
        given = {
            "issuer": provider.address,
            "client_id": CLIENT_ID,
            "client_secret_env": "CONSOLE_CLIENT",
            "operator_groups": ["soc"],
            "viewers": ["victor@example.com"],
        }
        async with served(fleet, address="http://127.0.0.1:8090", oidc=given | table, now=now, limits=limits) as (
            client,
            door,
        ):
            yield client, door, provider


Opened = Callable[..., AbstractAsyncContextManager[tuple[Any, Authenticator, Provider]]]


@pytest.fixture
def with_provider(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    return partial(provided, fleet, monkeypatch)


async def begin(client: Any, page: str = "/") -> str:
    async with client.get("/sign-in/start", params={"next": page}, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
        return str(answer.headers["Location"])


async def come_back(client: Any, query: dict[str, str]) -> tuple[int, str, str]:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    async with client.get("/sign-in/callback", params=query, headers=headers, allow_redirects=False) as answer:
        return answer.status, text_of(await answer.text()), answer.headers.get("Location", "")


async def test_a_provider_says_who_it_is(with_provider: Opened) -> None:
    """By its ID token; groups of it make an operator. The page that was asked for is shown then."""
    async with with_provider() as (client, _, provider):
        async with client.get("/alerts?state=any") as answer:  # leads to the page for signing in
            assert 'href="/sign-in/start?next=%2Falerts%3Fstate%3Dany"' in await answer.text()
        answer = provider.sign(await begin(client, "/alerts?state=any"))
        assert await come_back(client, answer) == (303, "", "/alerts?state=any")
        assert "oidc:alice@example.com Sign out" in (await shown(client))[1]


async def test_a_browser_holds_what_means_nothing_to_it(with_provider: Opened) -> None:
    """While it is with the provider, and not for longer."""
    async with with_provider() as (client, _, provider):
        async with client.get("/sign-in/start", allow_redirects=False) as answer:
            cookie = cookies_of(answer)["assay-stream-pending"]
            assert (cookie["httponly"], cookie["samesite"], cookie["max-age"]) == (True, "Lax", "600")
            query = provider.sign(answer.headers["Location"])
            assert query["state"] not in cookie.value
        async with client.get("/sign-in/callback", params=query, allow_redirects=False) as answer:
            assert cookies_of(answer)["assay-stream-pending"].value == ""


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_the_console_shows_its_secret_as_the_provider_wants(with_provider: Opened, method: str) -> None:
    """Or has none, as a public client: the verifier is enough."""
    async with with_provider() as (client, _, provider):
        provider.metadata["token_endpoint_auth_methods_supported"] = [method]
        assert (await come_back(client, provider.sign(await begin(client))))[0] == 303
    async with with_provider(client_secret_env=None) as (client, _, provider):
        provider.secret = None
        assert (await come_back(client, provider.sign(await begin(client))))[0] == 303


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"state": "other"}, "another sign-in was begun"),
        ({"state": ""}, "another sign-in was begun"),
        ({"state": "é"}, "another sign-in was begun"),
        ({"iss": "https://evil.example"}, "not this provider's"),
        ({"iss": ""}, "not this provider's"),
        ({"code": "guessed"}, "does not take its code"),
        ({"code": None, "error": "access_denied"}, "the provider answered access_denied"),
        ({"code": None, "error": "<b>planted</b>"}, "the provider answered no code"),
        ({"iss": None}, "not this provider's"),
    ],
)
async def test_an_answer_that_is_not_of_this_sign_in_is_refused(
    with_provider: Opened, query: dict[str, str | None], said: str
) -> None:
    """Its state, its issuer and its code have to be right (RFC 9207 for the issuer)."""
    async with with_provider() as (client, door, provider):
        given = provider.sign(await begin(client)) | query
        status, text, _ = await come_back(client, {name: value for name, value in given.items() if value is not None})
        assert (status, said in text, "planted" in text) == (401, True, False), text
        assert len(door.sessions) == 0


async def test_a_provider_that_states_no_issuer_is_believed_by_its_token(with_provider: Opened) -> None:
    """As long as its metadata promise none."""
    async with with_provider() as (client, _, provider):
        provider.metadata["authorization_response_iss_parameter_supported"] = None
        given = provider.sign(await begin(client))
        del given["iss"]
        assert (await come_back(client, given))[0] == 303


async def test_a_sign_in_is_of_the_browser_that_began_it(with_provider: Opened) -> None:
    """Of no other (nobody can be signed in as somebody else), and of this console, and not for long."""
    now = [NOW_US]
    async with with_provider(now=now) as (client, door, provider):
        given = provider.sign(await begin(client))
        home, jar = client.make_url("/"), client.session.cookie_jar
        held = next(each.value for each in jar if each.key == "assay-stream-pending")
        for note in (None, "", "x", "é", held[:-2], held[::-1]):
            jar.clear()
            if note is not None:
                jar.update_cookies({"assay-stream-pending": note}, home)
            status, text, _ = await come_back(client, given)
            assert (status, "not begun in this browser" in text) == (401, True)
        jar.update_cookies({"assay-stream-pending": held}, home)
        now[0] += (CONSOLE_LIMITS.pending_s + 1) * 1_000_000
        assert (await come_back(client, given))[0] == 401
        assert len(door.sessions) == 0
    async with with_provider() as (client, _, _):
        client.session.cookie_jar.update_cookies({"assay-stream-pending": held}, client.make_url("/"))
        assert (await come_back(client, given))[0] == 401


async def test_a_code_is_good_once(with_provider: Opened) -> None:
    """Sent again, it signs nobody in: neither without what the browser held, nor with it."""
    async with with_provider() as (client, door, provider):
        given = provider.sign(await begin(client))
        jar = client.session.cookie_jar
        held = next(each.value for each in jar if each.key == "assay-stream-pending")
        assert (await come_back(client, given))[0] == 303
        jar.clear()
        assert (await come_back(client, given))[0] == 401
        jar.update_cookies({"assay-stream-pending": held}, client.make_url("/"))
        status, text, _ = await come_back(client, given)
        assert (status, "used before" in text) == (401, True)
        assert len(door.sessions) == 1


UNSIGNED = b'{"id_token": "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2V2aWwuZXhhbXBsZSJ9."}'  # {"alg": "none"}


@pytest.mark.parametrize(
    "lie",
    [
        {"claims": {"nonce": "other"}},
        {"claims": {"nonce": None}},
        {"claims": {"nonce": 7}},
        {"claims": {"iss": "https://evil.example"}},
        {"claims": {"iss": None}},
        {"claims": {"aud": "another client"}},
        {"claims": {"aud": None}},
        {"claims": {"aud": ["another client"]}},
        {"claims": {"aud": [CLIENT_ID, "another client"]}},
        {"claims": {"aud": [CLIENT_ID, "another client"], "azp": "another client"}},
        {"claims": {"azp": "another client"}},
        {"claims": {"exp": NOW_S - CONSOLE_LIMITS.clock_skew_s}},
        {"claims": {"exp": None}},
        {"claims": {"exp": "never"}},
        {"claims": {"iat": NOW_S + CONSOLE_LIMITS.clock_skew_s + 1}},
        {"claims": {"iat": None}},
        {"claims": {"nbf": NOW_S + CONSOLE_LIMITS.clock_skew_s + 1}},
        {"claims": {"sub": None}},
        {"signs_with": a_key()},
        {"header": {"alg": "RS256", "kid": "unknown"}},
        {"header": {"alg": "HS256", "kid": "first"}, "signs_with": OctKey.import_key(SECRET)},
        {"answers": {"/token": (200, UNSIGNED)}},
        {"answers": {"/token": (200, b'{"id_token": "a.b.c"}')}},
        {"answers": {"/token": (200, b'{"id_token": ""}')}},
    ],
)
async def test_a_token_that_is_not_right_signs_nobody_in(with_provider: Opened, lie: dict[str, Any]) -> None:
    """Of another sign-in, issuer, client or time, by another key, or by none."""
    async with with_provider() as (client, door, provider):
        given = provider.sign(await begin(client))
        for name, value in lie.items():
            setattr(provider, name, value)
        status, text, _ = await come_back(client, given)
        assert (status, "ID token" in text) == (401, True), text
        assert len(door.sessions) == 0


@pytest.mark.parametrize(
    ("claims", "status", "said"),
    [
        ({"email": None}, 401, "gave no email"),
        ({"email": ["a"]}, 401, "gave no email"),
        ({"email": ""}, 401, "gave no email"),
        ({"email": "alice\u202e@example.com"}, 401, "gave no email"),
        ({"email": "a" * 201}, 401, "gave no email"),
        ({"email_verified": False}, 401, "has not verified"),
        ({"email_verified": "false"}, 401, "has not verified"),
        ({"groups": ["staff"]}, 403, "may_not_look"),
        ({"groups": {"soc": 1}}, 403, "may_not_look"),
        ({"groups": None}, 403, "may_not_look"),
        ({"groups": "socks"}, 403, "may_not_look"),
    ],
)
async def test_who_is_not_let_in_is_told_why(
    with_provider: Opened, claims: dict[str, Any], status: int, said: str
) -> None:
    async with with_provider() as (client, door, provider):
        provider.claims.update(claims)
        got, text, _ = await come_back(client, provider.sign(await begin(client)))
        assert (got, said in text) == (status, True), text
        assert len(door.sessions) == 0


async def test_names_and_groups_may_have_other_claims(with_provider: Opened) -> None:
    """A group alone may be a text; several audiences name the console as their party."""
    async with with_provider(name_claim="upn", groups_claim="roles") as (client, _, provider):
        provider.claims.update(upn="alice", roles="soc", aud=[CLIENT_ID, "other"], azp=CLIENT_ID, email_verified=False)
        assert (await come_back(client, provider.sign(await begin(client))))[0] == 303
        assert "oidc:alice Sign out" in (await shown(client))[1]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/.well-known/openid-configuration", (500, b"planted")),
        ("/.well-known/openid-configuration", (302, b"{}")),
        ("/.well-known/openid-configuration", (200, b"planted")),
        ("/.well-known/openid-configuration", (200, b"[" * 100_000)),
        ("/.well-known/openid-configuration", (200, b'{"issuer": "https://planted.example"}')),
        ("/.well-known/openid-configuration", (200, b"[]")),
    ],
)
async def test_a_provider_that_fails_is_named_on_the_page(
    with_provider: Opened, path: str, answer: tuple[int, bytes]
) -> None:
    async with with_provider() as (client, _, provider):
        provider.answers[path] = answer
        async with client.get("/sign-in/start", allow_redirects=False) as got:
            text = await got.text()
            assert (got.status, "provider_failing" in text, "planted" in text) == (503, True, False)


async def test_what_a_provider_answers_is_bounded(with_provider: Opened) -> None:
    async with with_provider() as (client, _, provider):
        provider.metadata["padding"] = "x" * CONSOLE_LIMITS.provider_bytes_max
        async with client.get("/sign-in/start", allow_redirects=False) as got:
            assert (got.status, "bytes" in await got.text()) == (503, True)


@pytest.mark.parametrize("direct", ["127.0.0.1", "other.example"])
async def test_a_provider_is_asked_through_the_proxy_of_the_environment(
    with_provider: Opened, monkeypatch: pytest.MonkeyPatch, direct: str
) -> None:
    """A console inside a network may reach it in no other way."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("NO_PROXY", direct)
    async with with_provider() as (client, _, _), client.get("/sign-in/start", allow_redirects=False) as got:
        assert got.status == (303 if direct == "127.0.0.1" else 503)


@pytest.mark.parametrize("answer", [(200, b"{}"), (500, b"{}"), (200, b'{"id_token": 7}')])
async def test_a_provider_that_fails_in_the_end_signs_nobody_in(
    with_provider: Opened, answer: tuple[int, bytes]
) -> None:
    async with with_provider() as (client, door, provider):
        given = provider.sign(await begin(client))
        provider.answers["/token"] = answer
        status, text, _ = await come_back(client, given)
        assert (status, "provider_failing" in text, len(door.sessions)) == (503, True, 0)


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize("address", [None, "http://login.example/x", "https://[", "ftp://127.0.0.1/", 7])
async def test_an_address_of_the_provider_is_encrypted(with_provider: Opened, name: str, address: Any) -> None:
    async with with_provider() as (client, _, provider):
        provider.metadata[name] = address
        async with client.get("/sign-in/start", allow_redirects=False) as got:
            assert (got.status, name in await got.text()) == (503, True)


async def test_a_provider_that_is_away_comes_back(with_provider: Opened) -> None:
    """What it answered is asked once an hour, and a failure is not kept for long."""
    now = [NOW_US]
    async with with_provider(now=now) as (client, _, provider):
        provider.answers["/.well-known/openid-configuration"] = (503, b"")
        for _ in range(3):
            assert (await client.get("/sign-in/start", allow_redirects=False)).status == 503
        assert provider.asked.count("/.well-known/openid-configuration") == 1  # nobody can make the console flood it
        provider.answers.clear()
        now[0] += CONSOLE_LIMITS.provider_pause_s * 1_000_000
        for _ in range(3):
            assert (await come_back(client, provider.sign(await begin(client))))[0] == 303
        assert provider.asked.count("/keys") == 1
        assert provider.asked.count("/.well-known/openid-configuration") == 2
        now[0] += CONSOLE_LIMITS.provider_keep_s * 1_000_000
        provider.claims.update(exp=NOW_S + 10_000)
        assert (await come_back(client, provider.sign(await begin(client))))[0] == 303
        assert provider.asked.count("/keys") == 2


async def test_a_new_key_of_the_provider_is_found(with_provider: Opened) -> None:
    """Soon, but not as often as somebody likes: forged tokens do not flood it."""
    now = [NOW_US]
    async with with_provider(now=now) as (client, _, provider):
        assert (await come_back(client, provider.sign(await begin(client))))[0] == 303
        provider.key = a_key("second")
        provider.header.update(kid="second")
        for _ in range(3):
            assert (await come_back(client, provider.sign(await begin(client))))[0] == 401
        assert provider.asked.count("/keys") == 1
        now[0] += CONSOLE_LIMITS.provider_again_s * 1_000_000
        assert (await come_back(client, provider.sign(await begin(client))))[0] == 303
        assert provider.asked.count("/keys") == 2


async def test_attempts_of_a_source_are_counted(with_provider: Opened) -> None:
    """Each costs the provider a question."""
    limits = replace(CONSOLE_LIMITS, source_attempts_max=2)
    async with with_provider(limits=limits) as (client, _, provider):
        for status in (401, 401, 429):
            given = provider.sign(await begin(client)) | {"code": "guessed"}
            assert (await come_back(client, given))[0] == status
        assert provider.asked.count("/token") == 2


async def test_nobody_behind_the_same_address_keeps_a_browser_out_that_signed_somebody_in(
    with_provider: Opened,
) -> None:
    """Guessed codes use up the attempts of their address; a browser that is known there has its own."""
    now = [NOW_US]
    limits = replace(CONSOLE_LIMITS, source_attempts_max=2, user_attempts_max=2)

    async def guessed() -> int:
        return (await come_back(client, provider.sign(await begin(client)) | {"code": "guessed"}))[0]

    async with with_provider(now=now, limits=limits) as (client, _, provider):
        async with client.get(
            "/sign-in/callback", params=provider.sign(await begin(client)), allow_redirects=False
        ) as got:
            device = cookies_of(got)["assay-stream-device"]
        assert (device["httponly"], device["samesite"], device["max-age"]) == (True, "Lax", str(90 * 24 * 3_600))
        home = client.make_url("/")
        for value in ("", "x", "\xff", device.value[:-2], str(cookies_of(got).get("assay-stream-pending"))):
            client.session.cookie_jar.update_cookies({"assay-stream-device": value}, home)
            await guessed()
            assert await guessed() in (401, 429)
            assert (await come_back(client, provider.sign(await begin(client))))[0] == 429
        client.session.cookie_jar.update_cookies({"assay-stream-device": device.value}, home)
        assert await guessed() == 401
        assert (await come_back(client, provider.sign(await begin(client))))[0] == 303
        assert [await guessed() for _ in range(2)] == [401, 429]
        now[0] += CONSOLE_LIMITS.device_s * 1_000_000 + 1_000_000
        assert [await guessed() for _ in range(3)] == [401, 401, 429]


async def test_a_provider_that_fails_uses_up_nobodys_attempts(with_provider: Opened) -> None:
    """Everybody tries again and again while it is away."""
    limits = replace(CONSOLE_LIMITS, source_attempts_max=2)
    async with with_provider(limits=limits) as (client, _, provider):
        provider.answers["/token"] = (500, b"")
        for _ in range(4):
            assert (await come_back(client, provider.sign(await begin(client))))[0] == 503
        del provider.answers["/token"]
        assert (await come_back(client, provider.sign(await begin(client))))[0] == 303


async def test_no_secret_is_in_a_page_an_address_or_the_log(
    with_provider: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the client's nor what the provider gave."""
    with caplog.at_level(logging.WARNING):
        async with with_provider() as (client, _, provider):
            location = await begin(client)
            given = provider.sign(location)
            await come_back(client, given)
            text = (await shown(client))[1] + (await shown(client, "/sign-in"))[1]
            await come_back(client, given | {"code": "guessed"})
        for secret in (SECRET, "planted", given["code"]):
            assert secret not in location + text + caplog.text
