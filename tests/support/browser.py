"""Debian's Chromium, driven over WebDriver (https://www.w3.org/TR/webdriver2/): the few commands that tests need."""

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.local.servers import node_package

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
IN_A_BROWSER = (
    pytest.mark.tier(name="browsers"),
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="needs Chromium and its driver: make chromium, as root"
    ),
)
_LIMIT_S = 60.0
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-lcd-text"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
_AXE = ("axe-core", "4.14.1")
_OVERFLOWING = """
const edge = document.documentElement.clientWidth;
const inBox = (one) => one.closest(".wide") || getComputedStyle(one).position === "absolute";
return [
  document.documentElement.scrollWidth - edge,
  [...document.body.querySelectorAll("*")].filter((one) => !inBox(one) && one.getBoundingClientRect().right > edge + 1)
    .map((one) => one.outerHTML.slice(0, 200)),
];
"""
_SERIOUS = """
return axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => [each.id, each.nodes.map((node) => node.html.slice(0, 200))]));
"""


class Browser:
    """One window."""

    def __init__(self, address: str) -> None:
        self._address = address

    def open(self, address: str) -> None:
        self.command("url", url=address)

    def width(self, pixels: int, height: int = 900) -> None:
        self.command("window/rect", width=pixels, height=height)

    def prefers(self, **features: str) -> None:
        """Show pages for a medium (``media="print"``), or as somebody prefers (``color_scheme="dark"``)."""
        media = features.pop("media", "")
        given = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        self.command("goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"media": media, "features": given})

    def click(self, chosen: str) -> None:
        """Click the first element that a selector finds, and wait until the page that comes of it is loaded."""
        self.command(f"element/{self._element(chosen)}/click")

    def write(self, chosen: str, text: str) -> None:
        self.command(f"element/{self._element(chosen)}/value", text=text)

    def picture(self, width: int, height: int, *, top: int = 0) -> bytes:
        """Return a part of the page as PNG, as a window of that width shows it."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        self.command("goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=metrics)
        self.command("goog/cdp/execute", cmd="Emulation.setScrollbarsHidden", params={"hidden": True})
        given = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        found = self.command("goog/cdp/execute", cmd="Page.captureScreenshot", params=given)
        return base64.b64decode(found["data"])

    def overflowing(self) -> list[Any]:
        """Return by how much the page scrolls sideways, and the elements that leave it."""
        found: list[Any] = self.run(_OVERFLOWING)
        return found

    def serious(self) -> list[Any]:
        """Return what axe finds of serious or critical accessibility issues."""
        self.run((node_package(*_AXE) / "axe.min.js").read_text(encoding="utf-8"))
        found: list[Any] = self.run(_SERIOUS)
        return found

    def run(self, script: str, *arguments: Any) -> Any:
        return self.command("execute/sync", script=script, args=list(arguments))

    def keys(self, *keys: str) -> None:
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.command("actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def logged(self) -> list[dict[str, Any]]:
        """Return what the browser complained about since the last time."""
        found: list[dict[str, Any]] = self.command("se/log", type="browser")
        return found

    def wait(self, script: str, *arguments: Any, within_s: float = 20.0) -> None:
        until_s = time.monotonic() + within_s
        while not self.run(script, *arguments):
            assert time.monotonic() < until_s, script
            time.sleep(0.1)

    def _element(self, chosen: str) -> str:
        found: dict[str, str] = self.command("element", using="css selector", value=chosen)
        return next(iter(found.values()))

    def command(self, name: str, **given: Any) -> Any:
        return _ask(f"{self._address}/{name}", "POST", given)


@contextmanager
def a_browser(profile: Path, *, scripts: bool = True) -> Iterator[Browser]:
    """A browser with a new profile.

    Args:
        scripts: whether it runs scripts of pages.
    """
    with _a_driver() as root:
        setting = 1 if scripts else 2
        options = {
            "binary": CHROMIUM,
            "args": [*_FLAGS, f"--user-data-dir={profile}"],
            "prefs": {"profile.managed_default_content_settings.javascript": setting},
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = _ask(root, "POST", {"capabilities": {"alwaysMatch": wanted}})
        address = f"{root}/{made['sessionId']}"
        try:
            yield Browser(address)
        finally:
            _ask(address, "DELETE", None)


@contextmanager
def _a_driver() -> Iterator[str]:
    """The address of a new driver's sessions.

    It takes a free port of IPv4 and ends if somebody has the same one of IPv6, so it is started up to three times.
    """
    said = []
    for _ in range(3):
        command = [str(DRIVER), "--port=0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as driver:
            try:
                assert driver.stdout is not None
                for line in driver.stdout:
                    said.append(line)
                    if "started successfully on port" in line:
                        yield f"http://127.0.0.1:{line.split()[-1].rstrip('.')}/session"
                        return
            finally:
                driver.terminate()
    pytest.fail("the browser's driver does not start: " + "".join(said))


def _ask(address: str, method: str, given: Any) -> Any:
    body = None if given is None else json.dumps(given).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:  # noqa: S310 -- the driver that was started
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()[:2_000]) from None
