"""Templates. Everything a template prints is escaped, and invisible characters in it are marked.

The environment enforces this, not each template: a template has to request an exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from assay_stream.text.escaping import LineSpan, Style, counted, shown, spans_of
from assay_stream.text.times import time_text

_SECOND_CHARS = len("2026-03-01T10:00:00")
_MARK = re.compile("⟦[^⟦⟧]*⟧")
_CLASSES: Mapping[Style, str] = {"dim": "quiet", "title": "name", "grave": "level-4", "warn": "level-3"}


def marked(text: str, *, keep_lines: bool = False) -> Markup:
    """Return any text as HTML: escaped, with marks for hidden characters and look-alikes."""
    return spanned(spans_of(text, keep_lines=keep_lines))


def spanned(spans: Iterable[LineSpan]) -> Markup:
    """Return spans as HTML: escaped, with their marks, each in the class of its style."""
    html = Markup()
    for span in spans:
        # No text holds brackets of this kind but ours.
        text = Markup(_MARK.sub(r'<span class="mark">\g<0></span>', str(escape(span.text))))  # noqa: S704 -- escaped
        html += Markup('<span class="%s">%s</span>') % (_CLASSES[span.style], text) if span.style in _CLASSES else text
    return html


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
        self._environment.filters |= {each.__name__: each for each in (lines, plain, when, bare, counted, spanned)}
        self._environment.globals |= {"url": url, "filling": None}

    def page(self, template: str, data: Mapping[str, Any]) -> bytes:
        """Render a page; a lone surrogate, which UTF-8 cannot hold, becomes ``?``."""
        return self._environment.get_template(template).render(data).encode("utf-8", "replace")
