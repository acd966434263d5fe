"""The pictures in the docs: pages of the console over the demo's records. ``make screenshots`` writes them."""

import os
from pathlib import Path

import pytest

from tests.support.browser import IN_A_BROWSER, Browser, a_browser
from tests.support.command import run_command_text
from tests.support.console_process import console, deciding, sign_in

pytestmark = [pytest.mark.servers, *IN_A_BROWSER, pytest.mark.timeout(300)]

DOCS = Path(__file__).parents[2] / "docs"
WIDTH = 1_000
BYTES_MAX = 120_000
TOP_OF = "return document.querySelector(arguments[0]).getBoundingClientRect().top + window.scrollY"


def test_the_docs_have_pictures_of_the_demo(tmp_path: Path) -> None:
    """Overview, queue, an alert with its diff, and what is asked before several decisions: small, and linked."""
    demo, store = tmp_path / "demo", tmp_path / "store"
    for arguments in (
        ("demo", "--no-broker", "--output", str(demo)),
        ("store", "load", "--store", str(store), str(demo / "observed.ndjson")),
    ):
        done = run_command_text(*arguments)
        assert done.returncode == 0, done.stderr
    with console(store, *deciding(tmp_path)) as address, a_browser(tmp_path / "profile") as browser:
        sign_in(browser, address)
        pictures = taken(browser, address)
    folder = Path(os.environ.get("ASSAY_SCREENSHOTS", tmp_path))
    for name, picture in pictures.items():
        (folder / name).write_bytes(picture)
    for name, picture in pictures.items():
        assert len(picture) < BYTES_MAX, name
        assert (DOCS / name).stat().st_size < BYTES_MAX
        assert f"]({name})" in (DOCS / "console.md").read_text(encoding="utf-8")


def taken(browser: Browser, address: str) -> dict[str, bytes]:
    browser.prefers(color_scheme="light")
    browser.open(f"{address}/")
    pictures = {"console-overview.png": browser.picture(WIDTH, 640)}
    browser.open(f"{address}/reviews")
    pictures["console-reviews.png"] = browser.picture(WIDTH, 640)
    alert = browser.run("return document.querySelector('.review a[href^=\"/alert\"]').getAttribute('href')")
    browser.click("input[name=pick]")
    browser.click("#act option[value=reject]")
    browser.click(".decide button")
    browser.wait("return document.querySelector('h1').innerText.startsWith('Confirm')")
    assert "sha256:" in browser.run("return document.getElementById('live').innerText")
    browser.write("textarea", "It tells the model to read ~/.netrc")
    browser.run("document.activeElement.blur()")
    pictures["console-confirm.png"] = browser.picture(WIDTH, 460)
    browser.open(address + alert)
    assert browser.run("return document.querySelectorAll('ins').length") > 0
    top = browser.run(TOP_OF, "h2")
    pictures["console-alert.png"] = browser.picture(WIDTH, 760, top=int(top) - 10)
    return pictures
