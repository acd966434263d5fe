"""The console in a real browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import fill
from deploy.local.servers import node_package
from tests.support.browser import HOW, MISSING, Browser, a_browser
from tests.support.console import a_store, every_address, hostile
from tests.support.readmodel import history

pytestmark = [pytest.mark.servers, pytest.mark.skipif(MISSING, reason=HOW), pytest.mark.timeout(600)]

AXE = ("axe-core", "4.14.1")
WIDE, NARROW = 1_280, 500  # Chromium's windows are not narrower
OVERFLOWING = """
const edge = document.documentElement.clientWidth;
const inBox = (one) => one.closest(".wide") || getComputedStyle(one).position === "absolute";
return [
  document.documentElement.scrollWidth - edge,
  [...document.body.querySelectorAll("*")].filter((one) => !inBox(one) && one.getBoundingClientRect().right > edge + 1)
    .map((one) => one.outerHTML.slice(0, 200)),
];
"""
SERIOUS = """
return axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => [each.id, each.nodes.map((node) => node.html.slice(0, 200))]));
"""


@contextmanager
def console(folder: Path) -> Iterator[str]:
    """The address of a console over a store."""
    command = [sys.executable, "-m", "assay_stream", "console", "--listen", "127.0.0.1:0", "--store", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().split()[1].rstrip("/")
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One that runs scripts."""
    with a_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def attacks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a server that attacks its reader."""
    return a_store(tmp_path_factory.mktemp("attacks"), hostile())


def kinds_of_page(folder: Path) -> list[str]:
    """One address of each page, and those of missing things."""
    found = {address.partition("?")[0]: address for address in reversed(every_address(folder))}
    return [*found.values(), "/nowhere", "/digest?value=unknown"]


def test_hostile_texts_neither_run_nor_leave_their_box(browser: Browser, attacks: Path) -> None:
    """On no page, however narrow: no script of theirs, no element, no scrolling sideways."""
    with console(attacks) as address:
        for width in (WIDE, NARROW):
            browser.width(width)
            for path in every_address(attacks) if width == WIDE else kinds_of_page(attacks):
                browser.open(address + path)
                assert browser.run("return document.title").endswith("· assay-stream"), path
                assert browser.run("return document.querySelectorAll('img, style, iframe, [onerror]').length") == 0
                assert browser.run("return document.scripts.length") == 1
                assert browser.run(OVERFLOWING) == [0, []], (width, path)
        complaints = [entry["message"] for entry in browser.logged()]
        assert not [text for text in complaints if "Content Security Policy" in text or "script" in text.lower()]


@pytest.mark.parametrize("dark", [False, True])
def test_no_page_has_a_serious_accessibility_issue(attacks: Path, tmp_path: Path, dark: bool) -> None:
    """By axe, in light and in dark."""
    axe = (node_package(*AXE) / "axe.min.js").read_text(encoding="utf-8")
    with console(attacks) as address, a_browser(tmp_path / "profile") as browser:
        preference = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        given = {"features": preference}
        browser.command("goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params=given)
        for path in kinds_of_page(attacks):
            browser.open(address + path)
            assert browser.run("return matchMedia('(prefers-color-scheme: dark)').matches") is dark
            browser.run(axe)
            assert browser.run(SERIOUS) == [], path


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


def test_everything_can_be_read_without_scripts(attacks: Path, tmp_path: Path) -> None:
    """And the page says how to see what is new."""
    with console(attacks) as address, a_browser(tmp_path / "profile", scripts=False) as browser:
        for path in kinds_of_page(attacks):
            browser.open(address + path)
            assert len(browser.run("return document.getElementById('live').innerText")) > 40, path
            assert "Reload this page" in browser.run("return document.getElementById('live-state').innerText")
