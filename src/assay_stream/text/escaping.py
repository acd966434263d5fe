"""Text of strangers made inert: one function for each kind of output, used wherever it is printed or exported.

Servers choose names and descriptions; anybody who can write to a topic chooses the rest. None of it may steer a
terminal, reorder a line, hide from a reader, run in a spreadsheet or break out of a ticket. JSON loses nothing by
that: an escape and the character mean the same. Canonical bytes (evidence, records on topics and their copies in
files) are hashed and compared, so they stay as they are.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

import orjson

from assay_stream.text.visible import is_unseen

_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7e]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_KINDS_KEPT = 4_096
"""Distinct characters whose form is remembered: what a fleet writes in is a few hundred."""

_FORMULA_STARTS = ("=", "+", "-", "@")
"""What a spreadsheet begins a formula with. Some fold other forms to these: full width, small, raised."""

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~!&@$]|:(?=//)|(?<=www)\.)", re.IGNORECASE)


def visible(text: str, *, keep: str = "") -> str:
    r"""Return a text on one line in which every character that a person would not see stands as ``\u{hex}``.

    For terminals, logs and fields of text formats. Controls, format and bidirectional marks, tags, variation selectors,
    fillers, line and paragraph separators, and all blanks but the space are written out.

    Args:
        keep: characters that the format can hold, line ends for one.
    """
    if text.isascii() and text.isprintable():
        return text
    return _NOT_PLAIN.sub(lambda found: found[0] if found[0] in keep else _visible_form(found[0]), text)


def json_text(text: str) -> str:
    r"""Return JSON text that parses to the same value, with ``\uXXXX`` for what ``visible`` writes out.

    Args:
        text: valid JSON; line feeds and tabs between its tokens stay.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return _BEYOND_ASCII.sub(lambda found: _json_form(found[0]), text)


def json_bytes(raw: bytes) -> bytes:
    if raw.isascii() and b"\x7f" not in raw:
        return raw
    return json_text(raw.decode()).encode()


def csv_line(values: Iterable[object]) -> str:
    """Return a line of a CSV file, with its end, that a spreadsheet shows and does not run.

    A text that begins like a formula, also behind blanks, quotes and what is not seen, gets an apostrophe. What is
    not seen is written out, but for line feeds, which a quoted cell may hold. A list of texts is one cell; anything
    else but a number is its JSON.
    """
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(map(_csv_cell, values))
    return line.getvalue()


def _csv_cell(value: object) -> object:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value)
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    shown = visible(text, keep="\n")
    for character in text:
        if unicodedata.normalize("NFKC", character).startswith(_FORMULA_STARTS):
            return f"'{shown}"
        if not (character.isspace() or character in "'\"`‘’“”" or is_unseen(character)):
            break
    return f"'{shown}" if text[:1] in ("\t", "\r", "\n") else shown


def markdown(text: str) -> str:
    """Return a text on one line of which Markdown and HTML make nothing: no link, image, table, code or mention."""
    return _MARKDOWN.sub(r"\\\1", visible(text))


@lru_cache(_KINDS_KEPT)
def _visible_form(character: str) -> str:
    if not is_unseen(character):
        return character
    return _SHORT.get(character, f"\\u{{{ord(character):x}}}")


@lru_cache(_KINDS_KEPT)
def _json_form(character: str) -> str:
    if not is_unseen(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))
