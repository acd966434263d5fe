"""Text of strangers made inert for each kind of output, with what is hidden in it made visible.

Servers choose names and descriptions; anybody who can write to a topic chooses the rest. None of it may steer a
terminal, reorder a line, hide from a reader, run in a spreadsheet or break out of a ticket. JSON loses nothing by
that: an escape and the character mean the same. Canonical bytes (evidence, records on topics and their copies in
files) are hashed and compared, so they stay as they are.

Marks stand in ``⟦⟧``: ``⟦U+200B ZERO WIDTH SPACE⟧``. Those brackets are marked themselves where a text has them,
so that no text can hold what looks like a mark of ours.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

import orjson

from assay_stream.text.words import other_forms, plain_form

Style = Literal["", "title", "dim", "grave", "warn", "mark", "gone", "come"]


class LineSpan(NamedTuple):
    """A piece of a line.

    Args:
        text: safe to print to a terminal.
    """

    text: str
    style: Style = ""


class PageLine(NamedTuple):
    """One line, which may be wrapped.

    Args:
        gutter: prefix of it, and of each line it is wrapped into.
        spans: its content.
        wraps: whether it may be wrapped; False for text to be copied.
    """

    gutter: str
    spans: tuple[LineSpan, ...]
    wraps: bool = True


_UNSEEN_CATEGORIES = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"))
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U00016fe4\U0001d159")
"""Characters that show nothing although their category says otherwise: fillers and the blank of Braille."""

_BRACKETS = "⟦⟧"
_TAG_FIRST, _TAG_LAST = "\U000e0000", "\U000e007f"
_TAG_OFFSET = 0xE0000
_GROUPS_MAX = 8
"""Runs of hidden characters that are named one by one where they stand together."""

_MARKS_MAX = 3
"""Combining marks on one letter: no script needs more, and a pile of them covers the lines around."""

_CONTROLS = {
    0x00: "NULL",
    0x07: "BELL",
    0x08: "BACKSPACE",
    0x09: "TAB",
    0x0A: "LINE FEED",
    0x0B: "LINE TABULATION",
    0x0C: "FORM FEED",
    0x0D: "CARRIAGE RETURN",
    0x1B: "ESCAPE",
    0x7F: "DELETE",
    0x9B: "CONTROL SEQUENCE INTRODUCER",
}
_WORD = re.compile(r"[^\W\d_]+")
_FOREIGN = re.compile("[\u0370-\u03ff\u0400-\u052f]")
_LATIN = re.compile("[A-Za-z]")


def is_unseen(character: str) -> bool:
    """Return True if a reader cannot see a character for what it is.

    Controls, format and bidirectional marks, tags, variation selectors, unassigned ones and all blanks but the space.
    """
    if character == " ":
        return False
    return _is_selector(character) or character in _UNSEEN or unicodedata.category(character) in _UNSEEN_CATEGORIES


def shown(text: str) -> str:
    """Return a text on one line, with marks."""
    return "".join(span.text for span in spans_of(text))


def spans_of(text: str, style: Style = "", *, keep_lines: bool = False) -> list[LineSpan]:
    """Return a text as pieces, the marks among them.

    Args:
        style: style of text that is not a mark.
        keep_lines: whether a line feed is shown as ``⏎`` and a line's end, and not as a mark.
    """
    if text.isascii() and text.isprintable():
        return [LineSpan(text, style)] if text else []
    spans: list[LineSpan] = []
    plain: list[str] = []
    for piece, is_mark in _pieces(text, keep_lines):
        if not is_mark:
            plain.append(piece)
            continue
        if plain:
            spans.append(LineSpan("".join(plain), style))
            plain.clear()
        spans.append(LineSpan(piece, "mark"))
    return [*spans, LineSpan("".join(plain), style)] if plain else spans


def _pieces(text: str, keep_lines: bool) -> Iterator[tuple[str, bool]]:
    alike = _lookalikes(text)
    place = 0
    for kind, group in groupby(text, key=_group_of):
        run = "".join(group)
        if kind == "tags":
            yield _tags(run), True
        elif kind == "selectors" and len(run) > 1:
            yield f"⟦{len(run)} VARIATION SELECTORS⟧", True
        elif kind == "feeds" and keep_lines:
            yield "⏎\n" * len(run), True
        elif kind in ("unseen", "selectors", "feeds"):
            yield _unseen(run), True
        elif kind == "combining":
            yield run[:_MARKS_MAX], False
            if len(run) > _MARKS_MAX:
                yield f"⟦{len(run) - _MARKS_MAX:,} COMBINING MARKS⟧", True
        elif not alike:
            yield run, False
        else:
            for index, character in enumerate(run, start=place):
                yield (_named(character, 1), True) if index in alike else (character, False)
        place += len(run)


def _group_of(character: str) -> str:
    if character.isascii():
        return "" if character.isprintable() else "feeds" if character == "\n" else "unseen"
    if _TAG_FIRST <= character <= _TAG_LAST:
        return "tags"
    if _is_selector(character):
        return "selectors"
    if character in _BRACKETS or is_unseen(character):
        return "unseen"
    return "combining" if unicodedata.category(character) in ("Mn", "Me") else ""


def _is_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _named(character: str, count: int) -> str:
    code = ord(character)
    name = _CONTROLS.get(code) or unicodedata.name(character, "CONTROL" if code < 0xA0 else "UNNAMED")
    times = f" ×{count:,}" if count > 1 else ""
    return f"⟦U+{code:04X} {name}{times}⟧"


def _unseen(run: str) -> str:
    groups = [(character, sum(1 for _ in same)) for character, same in groupby(run)]
    if len(groups) <= _GROUPS_MAX:
        return "".join(_named(character, count) for character, count in groups)
    # Long runs of several such characters carry a text in a code of its own: what matters is that they are there.
    counts = Counter(run).most_common(_GROUPS_MAX)
    named = ", ".join(f"U+{ord(character):04X} ×{count:,}" for character, count in counts)
    return f"⟦{len(run):,} HIDDEN CHARACTERS: {named}{', ...' if len(set(run)) > _GROUPS_MAX else ''}⟧"


def _tags(run: str) -> str:
    """Tags mirror ASCII, and a model may read them as such: so a person reads them too."""
    reading = "".join(chr(ord(tag) - _TAG_OFFSET) for tag in run)
    readable = "".join(character if character.isprintable() else "." for character in reading)
    return f"⟦{len(run):,} TAG CHARACTERS, READING: {readable}⟧"


def _lookalikes(text: str) -> frozenset[int]:
    """Return the places of letters that are drawn as Latin ones, where Latin is what a reader takes them for.

    That is so within a word that has Latin letters too; of a whole word where every word of its script in the text
    consists of such letters, which text in that script does not; and of letters for mathematics and full width.
    """
    if text.isascii():
        return frozenset()
    places: set[int] = set()
    whole: list[tuple[int, int]] = []
    is_foreign_text = False
    for match in _WORD.finditer(text):
        word = match[0]
        if word.isascii():
            continue
        if _FOREIGN.search(word):
            folds = all(
                letter.isascii() or any(form.isascii() for form in other_forms(plain_form(letter))) for letter in word
            )
            if _LATIN.search(word):
                places.update(match.start() + index for index, letter in enumerate(word) if _FOREIGN.match(letter))
            elif folds:
                whole.append(match.span())
            else:
                is_foreign_text = True
        places.update(match.start() + index for index, letter in enumerate(word) if _is_dressed(letter))
    if not is_foreign_text:
        for start, end in whole:
            places.update(range(start, end))
    return frozenset(places)


def _is_dressed(letter: str) -> bool:
    if letter.isascii():
        return False
    plain = unicodedata.normalize("NFKC", letter)
    return len(plain) == 1 and plain.isascii() and plain.isalpha()


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun; ``plural`` defaults to the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7e]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_KINDS_KEPT = 4_096
"""Distinct characters whose form is remembered: what a fleet writes in is a few hundred."""

_FORMULA_STARTS = ("=", "+", "-", "@")
"""What a spreadsheet begins a formula with. Some fold other forms to these: full width, small, raised."""
_CELL_ENDS = re.compile(r"(?<=[;\n])")
"""Where a spreadsheet whose list separator is the semicolon begins a cell, in quotes or not."""

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~!&@$]|:(?=//)|(?<=www)\.)", re.IGNORECASE)

_SARIF_LINKS = re.compile(r"[\\\[\]]")


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

    A text that begins like a formula, also behind blanks, quotes and what is not seen, gets an apostrophe, and so does
    what follows a semicolon or a line feed in it. What is not seen is written out, but for line feeds, which a quoted
    cell may hold. A list of texts is one cell; anything else but a number is its JSON.
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
    pieces = [f"'{piece}" if _may_run(piece) else piece for piece in _CELL_ENDS.split(text)]
    shown = visible("".join(pieces), keep="\n")
    return f"'{shown}" if text[:1] in ("\t", "\r", "\n") and not shown.startswith("'") else shown


def _may_run(text: str) -> bool:
    for character in text:
        if unicodedata.normalize("NFKC", character).startswith(_FORMULA_STARTS):
            return True
        if not (character.isspace() or character in "'\"`‘’“”" or is_unseen(character)):
            break
    return False


def markdown(text: str) -> str:
    """Return a text on one line of which Markdown and HTML make nothing: no link, image, table, code or mention."""
    return _MARKDOWN.sub(r"\\\1", visible(text))


def sarif_text(text: str) -> str:
    """Return a message that a SARIF viewer shows verbatim.

    Braces are doubled, so that nothing is taken for a placeholder (SARIF 2.1.0, 3.11.5), and brackets and backslashes
    are escaped, so that nothing is taken for an embedded link (3.11.6).
    """
    return _SARIF_LINKS.sub(r"\\\g<0>", text).replace("{", "{{").replace("}", "}}")


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
