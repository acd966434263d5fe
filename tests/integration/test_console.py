"""The console in a real browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from assay_stream.console.rendering import url
from assay_stream.limits import CONSOLE_LIMITS
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import fill
from tests.support.browser import IN_A_BROWSER, Browser, a_browser
from tests.support.console import SERVER, a_store, every_address, hostile
from tests.support.console_process import console, deciding, sign_in
from tests.support.readmodel import history

pytestmark = [pytest.mark.servers, *IN_A_BROWSER, pytest.mark.timeout(600)]

WIDE, NARROW = 1_280, 500  # Chromium's windows are not narrower


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with a_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def attacks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_store(tmp_path_factory.mktemp("attacks"), hostile())


@contextmanager
def operated(browser: Browser, store: Path, folder: Path) -> Iterator[str]:
    with console(store, *deciding(folder)) as address:
        sign_in(browser, address)
        yield address


def follow(browser: Browser, path: str) -> None:
    """Go to a page as by a link on the page that is open: no link from elsewhere leads to a decision."""
    browser.run("window.isLeft = true; location.assign(arguments[0])", path)
    browser.wait("return !window.isLeft && document.readyState === 'complete'")
    if path.startswith("/confirm"):
        assert browser.run("return document.querySelector('h1').innerText").startswith("Confirm"), path


def decisions_of(browser: Browser, address: str) -> list[str]:
    """The pages of reviews, and those that confirm what would be decided on all that is on them, or on a server."""
    found, picks = ["/reviews?all=yes"], list[str]()
    while True:
        browser.open(address + found[-1])
        picks += browser.run("return [...document.getElementsByName('pick')].map((one) => one.value)")
        following = browser.run("return document.querySelector('a[rel=next]')?.getAttribute('href')")
        if not following:
            break
        found.append(following)
    assert picks
    chosen = [("pick", each) for each in picks[: CONSOLE_LIMITS.subjects_max]]
    found += [f"/confirm?{urlencode([('act', act), *chosen])}" for act in ("approve", "acknowledge", "assign")]
    stale = [("act", "reject"), ("pick", picks[0]), ("pick", f"{picks[-1].partition('.')[0]}.{'0' * 16}")]
    return [*found, f"/confirm?{urlencode(stale)}", url("/confirm", act="approve", server=SERVER)]


def kinds_of_page(folder: Path) -> list[str]:
    found = {address.partition("?")[0]: address for address in reversed(every_address(folder))}
    return [*found.values(), "/nowhere", "/digest?value=unknown"]


def test_hostile_texts_neither_run_nor_leave_their_box(browser: Browser, attacks: Path, tmp_path: Path) -> None:
    """On no page, however narrow, forms included: no script of theirs, no element, no scrolling sideways."""
    with operated(browser, attacks, tmp_path) as address:
        of_deciding = decisions_of(browser, address)
        browser.logged()
        for width in (WIDE, NARROW):
            browser.width(width)
            paths = every_address(attacks) if width == WIDE else kinds_of_page(attacks)
            for path in [*paths, *of_deciding]:
                follow(browser, path)
                browser.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
                assert browser.run("return document.title").endswith("· assay-stream"), path
                assert browser.run("return document.querySelectorAll('img, style, iframe, [onerror]').length") == 0
                assert browser.run("return document.scripts.length") == 1
                assert browser.overflowing() == [0, []], (width, path)
        complaints = [entry["message"] for entry in browser.logged()]
        assert not [text for text in complaints if "Content Security Policy" in text or "script" in text.lower()]


@pytest.mark.parametrize("dark", [False, True])
def test_no_page_has_a_serious_accessibility_issue(attacks: Path, tmp_path: Path, dark: bool) -> None:
    """By axe, in light and in dark, for somebody who may decide: those pages have all that the others have."""
    with a_browser(tmp_path / "profile") as browser, operated(browser, attacks, tmp_path) as address:
        browser.prefers(color_scheme="dark" if dark else "light")
        for path in [*kinds_of_page(attacks), *decisions_of(browser, address)]:
            follow(browser, path)
            browser.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
            assert browser.run("return matchMedia('(prefers-color-scheme: dark)').matches") is dark
            assert browser.serious() == [], path


def test_a_keyboard_reaches_the_content_first(browser: Browser, attacks: Path) -> None:
    """The first stop is a link to it, and where the focus is can be seen."""
    with console(attacks) as address:
        browser.open(f"{address}/alerts")
        browser.keys("\ue004")
        assert browser.run("return document.activeElement.textContent") == "Skip to the content"
        assert browser.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
        browser.keys("\ue007")
        browser.wait("return document.activeElement.id === 'main'")


def test_a_page_changes_while_one_looks(browser: Browser, tmp_path: Path) -> None:
    """Without being loaded again; not while a form is in use."""
    a_store(tmp_path, ())
    with console(tmp_path) as address:
        browser.open(address)
        browser.run("window.same = true")
        browser.wait("return document.getElementById('live-state').textContent.includes('Kept up to date')")
        assert not browser.run("return document.body.textContent.includes('server-0')")
        with schema.writing(tmp_path) as connection:
            fill(connection, history())
        browser.wait("return document.getElementById('live').textContent.includes('server-0')")
        assert browser.run("return window.same")


def test_what_somebody_ticked_or_wrote_stays(browser: Browser, tmp_path: Path) -> None:
    """Though the store changes, and though nothing has the focus; the page says that there is something new."""
    store = a_store(tmp_path / "store", hostile())
    with operated(browser, store, tmp_path) as address:
        browser.open(f"{address}/reviews")
        browser.wait("return document.getElementById('live-state').textContent.includes('Kept up to date')")
        browser.click("input[name=pick]")
        browser.run("document.activeElement.blur()")
        with schema.writing(store) as connection:
            fill(connection, history())
        browser.wait("return document.getElementById('live-state').textContent.includes('something new')")
        assert browser.run("return document.querySelector('input[name=pick]').checked")


def test_forms_are_not_printed(browser: Browser, attacks: Path, tmp_path: Path) -> None:
    """What an operator sees on paper is the alert, not its buttons."""
    with operated(browser, attacks, tmp_path) as address:
        browser.prefers(media="print")
        alert = next(path for path in every_address(attacks) if path.startswith("/alert?"))
        for path in (alert, "/reviews"):
            browser.open(address + path)
            shown = "return [...document.querySelectorAll('button, textarea')].filter((one) => one.checkVisibility())"
            assert browser.run(f"{shown}.length") == 0, path
            assert browser.run("return document.querySelectorAll('button, textarea').length") > 0
        browser.prefers()


def test_everything_can_be_read_without_scripts(attacks: Path, tmp_path: Path) -> None:
    """And the page says how to see what is new."""
    with a_browser(tmp_path / "profile", scripts=False) as browser, operated(browser, attacks, tmp_path) as address:
        for path in [*kinds_of_page(attacks), *decisions_of(browser, address)]:
            follow(browser, path)
            assert len(browser.run("return document.getElementById('live').innerText")) > 40, path
            assert "Reload this page" in browser.run("return document.getElementById('live-state').innerText")
