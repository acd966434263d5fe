"""Templates. Everything a template prints is escaped, and invisible characters in it are marked.

The environment enforces this, not each template: a template has to request an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from assay_stream.report.pins import time_text
from assay_stream.text.escaping import counted, shown, spans_of

_SECOND_CHARS = len("2026-03-01T10:00:00")


def marked(text: str, *, keep_lines: bool = False) -> Markup:
    """Return any text as HTML: escaped, with marks for hidden characters and look-alikes."""
    html = (
        Markup('<span class="mark">%s</span>') % span.text if span.style == "mark" else escape(span.text)
        for span in spans_of(text, keep_lines=keep_lines)
    )
    return Markup("").join(html)


def lines(text: str) -> Markup:
    """The same, keeping line breaks."""
    return marked(text, keep_lines=True)


def plain(text: str) -> Markup:
    """Escape text, with marks as plain text: for a page's title, which holds no elements."""
    return escape(shown(text))


def when(time_us: int | None) -> Markup:
    """Format a time, microseconds since the epoch, to the second; ``None`` is never."""
    if time_us is None:
        return Markup("never")
    text = time_text(time_us)
    short = f"{text[:_SECOND_CHARS].replace('T', ' ')}Z"
    return Markup('<time datetime="%s" title="%s">%s</time>') % (text, text, short)


def url(path: str, /, **given: str | None) -> str:
    """Return the address of a page of ours; absent fields are left out."""
    query = urlencode({name: text for name, text in given.items() if text}, errors="replace")
    return f"{path}?{query}" if query else path


def bare(value: str) -> str:
    """Return the first digits of a digest; the page's link has all of it."""
    digits = value.removeprefix("sha256:")
    return digits if len(digits) <= 16 else f"{digits[:12]}…"


def _printed(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if hasattr(value, "__html__") else marked(str(value))


class Renderer:
    """Render pages; thread-safe."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("assay_stream.console"),
            autoescape=True,
            finalize=_printed,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {"lines": lines, "plain": plain, "when": when, "bare": bare, "counted": counted}
        self._environment.globals |= {"url": url, "filling": None}

    def page(self, template: str, data: Mapping[str, Any]) -> bytes:
        """Render a page; a lone surrogate, which UTF-8 cannot hold, becomes ``?``."""
        return self._environment.get_template(template).render(data).encode("utf-8", "replace")
