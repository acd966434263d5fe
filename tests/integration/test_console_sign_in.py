"""Signing in to the console in a real browser: with a password, and by a real OpenID Connect provider."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deploy.local.servers import node_package
from tests.support.browser import IN_A_BROWSER, Browser, a_browser
from tests.support.command import run_command_text
from tests.support.console import a_store
from tests.support.console_process import console
from tests.support.deployment import free_port
from tests.support.readmodel import history

pytestmark = [pytest.mark.servers, *IN_A_BROWSER, pytest.mark.timeout(600)]

PROVIDER = ("oidc-provider", "9.13.3")
PASSWORD = "correct horse battery"
SECRET = "planted-client-secret"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_store(tmp_path_factory.mktemp("fleet"), history())


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with a_browser(tmp_path / "profile") as browser:
        yield browser


@contextmanager
def provider(redirect: str) -> Iterator[str]:
    """The address of oidc-provider from npm, whose client is the console. It runs on another site than that."""
    script, port = Path(__file__).parent.parent / "support" / "oidc_provider.mjs", free_port()
    command = ["node", str(script), str(node_package(*PROVIDER)), str(port), redirect, SECRET]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "listening\n"
            yield f"http://localhost:{port}"
        finally:
            process.terminate()


def with_password(folder: Path) -> tuple[str, ...]:
    identity = folder / "console.toml"
    for name, role in (("alice", "operator"), ("victor", "viewer")):
        arguments = ("--role", role, "--identity", str(identity))
        assert run_command_text("console", "user", "add", name, *arguments, stdin=PASSWORD.encode()).returncode == 0
    return ("--identity", str(identity))


def type_in(browser: Browser, *fields: tuple[str, str]) -> None:
    for name, text in fields:
        browser.run(f"document.getElementsByName('{name}')[0].select()")
        browser.keys(*text)
    browser.keys("\ue007")


def click(browser: Browser, selector: str) -> None:
    browser.run(f"document.querySelector('{selector}').click()")


def test_somebody_signs_in_looks_and_signs_out(fleet: Path, tmp_path: Path, browser: Browser) -> None:
    """With the keyboard alone, and comes to the page that was asked for; no script can read the session's cookie."""
    with console(fleet, *with_password(tmp_path)) as address:
        browser.open(f"{address}/alerts?state=any")
        assert browser.run("return location.pathname") == "/sign-in"
        type_in(browser, ("user", "alice"), ("password", "a wrong password"))
        browser.wait("return document.querySelector('[role=alert]') !== null")
        assert browser.run("return document.getElementsByName('user')[0].value") == "alice"
        assert browser.run("return document.getElementsByName('password')[0].value") == ""
        type_in(browser, ("password", PASSWORD))
        browser.wait("return location.pathname + location.search === '/alerts?state=any'")
        assert "local:alice" in browser.run("return document.querySelector('.who').innerText")
        assert browser.run("return document.cookie") == ""
        browser.wait("return document.getElementById('live-state').textContent.includes('Kept up to date')")
        click(browser, ".who button")
        browser.wait("return location.pathname === '/sign-in'")
        browser.open(f"{address}/alerts")
        assert browser.run("return location.pathname") == "/sign-in"


@pytest.mark.parametrize(("name", "shown"), [("alice", "oidc:alice@example.com"), ("bob", "may_not_look")])
def test_a_real_provider_says_who_it_is(fleet: Path, tmp_path: Path, browser: Browser, name: str, shown: str) -> None:
    """Alice is in the group of operators; Bob is known there, and not let in here. The provider is another site."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    identity = tmp_path / "console.toml"
    (tmp_path / "secret").write_text(SECRET)
    with provider(f"{address}/sign-in/callback") as issuer:
        identity.write_text(
            f'address = "{address}"\n[oidc]\nissuer = "{issuer}"\nclient_id = "console"\n'
            'client_secret_file = "secret"\nscopes = ["openid", "email", "groups"]\noperator_groups = ["soc"]\n'
        )
        with console(fleet, "--identity", str(identity), "--decide", "--listen", f"127.0.0.1:{port}"):
            browser.open(f"{address}/servers")
            assert browser.run("return location.pathname") == "/sign-in"
            click(browser, "main a.button")
            browser.wait("return document.getElementsByName('login').length > 0")
            type_in(browser, ("login", name), ("password", "any"))
            browser.wait("return document.querySelector('input[name=prompt][value=consent]') !== null")
            click(browser, "button[type=submit]")
            browser.wait("return document.body.innerText.includes(arguments[0])", shown)
            assert browser.run("return location.pathname") == ("/servers" if name == "alice" else "/sign-in/callback")
            assert "read-only" not in browser.run("return document.querySelector('header').innerText")
            assert SECRET not in browser.run("return document.documentElement.outerHTML")


def test_a_page_of_another_site_can_do_nothing(fleet: Path, tmp_path: Path, browser: Browser) -> None:
    """It posts a form in the browser of somebody who is signed in, and frames a page: both are refused."""
    with console(fleet, *with_password(tmp_path)) as address, another_site(address) as evil:
        browser.open(f"{address}/")
        type_in(browser, ("user", "alice"), ("password", PASSWORD))
        browser.wait("return location.pathname === '/'")
        browser.open(f"{evil}/form")
        browser.wait("return location.pathname === '/sign-out'")
        assert "local:alice" not in browser.run("return document.querySelector('main').innerText")
        browser.open(f"{address}/")
        assert "local:alice" in browser.run("return document.querySelector('.who').innerText")
        browser.open(f"{evil}/frame")
        assert any("frame" in entry["message"] for entry in browser.logged())
        browser.open(f"{evil}/link")
        click(browser, "a")
        browser.wait("return location.pathname === '/servers'")  # links work


@contextmanager
def another_site(console: str) -> Iterator[str]:
    pages = {
        "/form": f'<form method="post" action="{console}/sign-out"><input name="csrf" value="guessed"></form>'
        "<script>document.forms[0].submit()</script>",
        "/frame": f'<iframe src="{console}/servers"></iframe>',
        "/link": f'<a href="{console}/servers">a link</a>',
    }

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(pages.get(self.path, "").encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)


@pytest.mark.parametrize("dark", [False, True])
def test_the_pages_of_signing_in_have_no_serious_accessibility_issue(
    fleet: Path, tmp_path: Path, browser: Browser, dark: bool
) -> None:
    """By axe: to sign in, refused, and signed in."""
    browser.prefers(color_scheme="dark" if dark else "light")
    with console(fleet, *with_password(tmp_path)) as address:
        browser.open(f"{address}/")
        assert browser.serious() == []
        type_in(browser, ("user", "victor"), ("password", "a wrong password"))
        browser.wait("return document.querySelector('[role=alert]') !== null")
        assert browser.serious() == []
        type_in(browser, ("password", PASSWORD))
        browser.wait("return location.pathname === '/'")
        assert browser.serious() == []
