"""Decode disguised text, and skip patterns that cannot match.

1. Every disguise of a text is undone, then every disguise of the result, down to a maximum depth.
2. A text that was already read is not read again, whichever decodings led to it.
3. If a limit stops the decoding, the rest is reported as a view without text.

Skipping is only an optimisation: whether a rule matches is decided by its pattern.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from itertools import chain
from typing import Final, NamedTuple
from urllib.parse import unquote

from ahocorasick_rs import AhoCorasick

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import Work

# Letters that a case-insensitive pattern takes for another one, though its lowercase is not that one.
_OTHER_CASES = dict(zip("İıᲀᲁᲂᲃᲄᲅᲆᲇᲈ", "iiвдосттъѣꙋ", strict=True))
UNITS_PER_HIT: Final = 3
"""Units of work per needle found."""
CHARS_PER_UNIT: Final = 5
"""Characters scanned per unit of work, in one pass over texts."""


class Needles:
    """The literal texts of rules, in the form of ``lowered``, found all at once: each match of a rule has one."""

    def __init__(self, needles: Mapping[str, tuple[str, ...]]) -> None:
        rules: dict[str, list[str]] = {}
        for rule, listed in needles.items():
            for needle in listed:
                rules.setdefault(needle, []).append(rule)
        self._rules = [frozenset(listed) for listed in rules.values()]
        self._automaton = AhoCorasick(list(rules))

    def rules_of(self, lowered: str, work: Work) -> Set[str]:
        """Return the rules that have a needle in a text."""
        work.spend(len(lowered) // CHARS_PER_UNIT)
        rules, hits = self.found_in(lowered)
        work.spend(UNITS_PER_HIT * hits)
        return rules

    def found_in(self, lowered: str) -> tuple[Set[str], int]:
        """Return the rules that have a needle in a text, and its number of needles."""
        hits = self._automaton.find_matches_as_indexes(lowered, overlapping=True)
        return frozenset().union(*(self._rules[needle] for needle, *_ in hits)), len(hits)


def lowered(seen: str) -> str:
    """Return a visible text as a case-insensitive pattern compares it with lowercase ASCII letters."""
    if seen.isascii():
        return seen.lower()
    for other, letter in _OTHER_CASES.items():
        if other in seen:
            seen = seen.replace(other, letter)
    return seen.lower()


_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ROT13 = str.maketrans(
    _LETTERS + _LETTERS.upper(), _LETTERS[13:] + _LETTERS[:13] + (_LETTERS[13:] + _LETTERS[:13]).upper()
)
_URL_SAFE = str.maketrans("-_", "+/")
_PRINTABLE_CHARS_MIN = 10
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,}+={0,2}(?:\s?\r?\n[A-Za-z0-9+/_-]{16,76}+={0,2}){0,200}")
_BASE32 = re.compile(r"(?<![A-Za-z0-9])[A-Z2-7]{24,}+={0,6}")
_HEX = re.compile(
    r"(?<![0-9A-Za-z])(?:0x)?[0-9a-fA-F]{24,}+(?![0-9A-Za-z])|(?:\b[0-9a-fA-F]{2}["
    r" :,]){12,4000}+(?:[0-9a-fA-F]{2}\b)?|(?:\\x[0-9a-fA-F]{2}){4,4000}+"
)
_BITS = re.compile(r"(?:\b[01]{8}[ ,]?){6,4000}+")
_CODES = re.compile(r"(?:\b\d{2,3}[ ,]{1,2}){10,4000}+(?:\d{2,3}\b)?")
_ESCAPES = re.compile(r"\\u\{?([0-9a-fA-F]{4,6})\}?|\\x([0-9a-fA-F]{2})|[uU]\+([0-9a-fA-F]{4,5})[ ,]?")
# Without its semicolon, a name is rather a parameter's: "?id=39&current=true" has no currency sign in it. These are
# hardly any parameter's. More digits than these are no character, and Python refuses to read them.
_ENTITY = re.compile(
    r"&(?:#(?:[0-9]{1,4000}+|[xX][0-9A-Fa-f]{1,4000}+);?|[A-Za-z][A-Za-z0-9]{1,31};"
    r"|(?i:lt|gt|amp|quot)|nbsp|shy|middot|ord[fm]|[A-Za-z](?:acute|grave|circ|uml|tilde))"
)
_PERCENT = re.compile(r"(?:%[0-9a-fA-F]{2}[^\s%]{0,3}){4}")
_SPACED = re.compile(r"(?<!\w)\w(?:[ .\-_*·|]\w){5,2000}+(?!\w)")
_SPACED_WORD = re.compile(r"(?<!\w)\w(?:[ .\-_*·|]\w){1,64}+(?!\w)")
_MORSE = re.compile(r"(?<!\S)(?:[.-]{1,5} (?:[/|] )?){8}")
_MORSE_LETTER = re.compile(r"(?<!\S)(?:([.-]{1,5})(?: |$)|/)")
_MORSE_ALPHABET = (
    ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --.."
)
_MORSE_CODE = dict(zip(_MORSE_ALPHABET.split(), _LETTERS, strict=True))
_SPACER = re.compile(r"(?<=\w)[ .\-_*·|](?=\w(?:[ .\-_*·|]|$))")
_TAGS = re.compile("[\U000e0020-\U000e007e]++")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}+")
_ZERO_WIDTH_BLANKS = re.compile("[\u180e\u200b\u2060\u2063\ufeff]+")
_ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060-\u2064\ufeff]{16,}+")
_DATA_URI = re.compile(
    r"data:(?:image|audio|font|video)/[\w.+-]{1,40};base64,([A-Za-z0-9+/_-]{0,32})[A-Za-z0-9+/=_-]*+"
)
_MARKUP = (b"<svg", b"<?xml")
# What a printable text may hold besides: a reader does not see it, and its disguises are undone in turn.
_FORMAT = re.compile(
    "[\xad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\U000e0000-\U000e01ef\r\n\t]+"
)
GATES: Final = {
    "spaced": re.compile(r"[ .\-_*·|]\w[ .\-_*·|]\w[ .\-_*·|]\w[ .\-_*·|]\w[ .\-_*·|]\w"),
    "morse": re.compile(r"[.-] (?:[/|] )?[.-]{1,5} (?:[/|] )?[.-]"),
    "run": re.compile("(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16}"),
    "codes": re.compile(r"[ :,](?:[0-9a-fA-F]{2}|\d{3}|[01]{8})[ :,]{1,2}[0-9a-fA-F\d]{2}"),
}
"""What a text must contain for each of these decodings to find anything."""
ALL_GATES: Final = frozenset(GATES)
_BLOBS = (
    (_BASE64, "base64", frozenset(["run"])),
    (_BASE32, "base32", frozenset(["run"])),
    (_HEX, "hex", frozenset(["run", "codes"])),
    (_BITS, "binary", frozenset(["codes"])),
    (_CODES, "codes", frozenset(["codes"])),
)
_CHARS_PER_CHAR_MAX = 4
"""Characters of decoded text per character of the text itself: several decodings may apply at once."""
_UNITS_PER_UNSEEN_CHAR = 2
_UNITS_PER_BIT = 1
_UNITS_PER_RESPELT_CHAR = 3
_UNITS_PER_BLOB_CHAR = 2
_UNITS_PER_BLOB = 20
_UNITS_PER_READ_CHAR = 3
_CHUNK_BYTES = 4_096
_UNITS_PER_CHUNK = 500
_UNITS_PER_VIEW = 200
_UTF16_BYTES_MIN = 2 * _PRINTABLE_CHARS_MIN
_PACKED = {b"\x1f\x8b": "gzip", b"\x78\x01": "zlib", b"\x78\x5e": "zlib", b"\x78\x9c": "zlib", b"\x78\xda": "zlib"}
_ANY_WINDOW = 32 + zlib.MAX_WBITS
_GZIP_TRAILER_BYTES, _ZLIB_TRAILER_BYTES = 8, 4


class View(NamedTuple):
    """One reading of a text.

    Args:
        how: the disguises that were undone, outermost first: ``base64 > hex``.
        text: the decoded text; empty where more is hidden than the bounds allow to undo.
        is_blob: whether a part of the text was decoded, rather than all of it respelt.
        is_said: whether it is readable as it stands; otherwise it may be once decoded further.
    """

    how: str
    text: str
    is_blob: bool
    is_said: bool = True


def gates_of(text: str) -> Set[str]:
    """Return the expensive decodings that may apply to a text."""
    return frozenset(way for way, gate in GATES.items() if gate.search(text))


def hidden_views(
    text: str, work: Work, *, gates: Collection[str] = ALL_GATES, is_unseen: bool = True
) -> Iterator[View]:
    """Yield the texts that result from undoing each known disguise, recursively."""
    pending = deque([(View("", text, is_blob=False), 0, gates, is_unseen)])
    known = {text}
    left = DEFAULT_LIMITS.decoded_chars_max + _CHARS_PER_CHAR_MAX * len(text)
    while pending:
        outer, depth, gates, is_unseen = pending.popleft()
        unseen = _unseen(outer.text, work) if is_unseen else ()
        for view in chain(unseen, _respelt(outer.text, gates, work), _blobs(outer.text, gates, work)):
            if view.text in known:
                continue
            how = f"{outer.how} > {view.how}" if outer.how else view.how
            left -= len(view.text)
            if depth == DEFAULT_LIMITS.decoding_depth_max or left < 0:
                yield View(how, "", is_blob=False)
                return
            known.add(view.text)
            work.spend(_UNITS_PER_VIEW + _UNITS_PER_READ_CHAR * len(view.text))
            inner = View(how, view.text, outer.is_blob or view.is_blob)
            if view.is_said:
                yield inner
            pending.append((inner, depth + 1, gates_of(view.text), True))


def rot13(seen: str) -> str:
    return seen.translate(_ROT13)


def backwards(seen: str) -> str:
    return seen[::-1]


_RESPELT_BLOBS: Final[Mapping[str, Mapping[str, Callable[[str], str]]]] = {
    "base64": {"backwards": backwards, "rot13": rot13},
    "hex": {"backwards": backwards},
}
"""Ways to respell a blob that is not readable as it stands."""


def _unseen(text: str, work: Work) -> Iterator[View]:
    if text.isascii():
        return
    work.spend(_UNITS_PER_UNSEEN_CHAR * len(text))
    tags = "".join(_TAGS.findall(text))
    if tags:
        yield View("tag_characters", "".join(chr(ord(char) - 0xE0000) for char in tags), True)
    for run in _SELECTORS.findall(text):
        work.spend(_UNITS_PER_BLOB)
        yield from _text_view(bytes(_selector_byte(char) for char in run), "variation_selectors")
    for run in _ZERO_WIDTH.findall(text):
        yield from _zero_width(run, work)
    # A person sees one word where a model reads two.
    yield View("zero_width_blanks", _ZERO_WIDTH_BLANKS.sub(" ", text), is_blob=False)


def _selector_byte(char: str) -> int:
    code = ord(char)
    return code - 0xFE00 if code < 0xE0100 else code - 0xE0100 + 16


def _zero_width(run: str, work: Work) -> Iterator[View]:
    """Read two kinds of zero-width characters as bits, in both polarities; a third kind may separate the bytes."""
    kinds = sorted(set(run))
    work.spend(_UNITS_PER_BLOB + _UNITS_PER_BIT * len(run) * len(kinds) * (len(kinds) - 1))
    for one in kinds:
        for zero in kinds:
            digits = {ord(kind): None for kind in kinds} | {ord(one): "1", ord(zero): "0"}
            if one != zero and (bits := run.translate(digits)):
                yield from _text_view(_bytes_of(bits), "zero_width")


def _bytes_of(bits: str) -> bytes:
    """Pack every eight digits into a byte; a remainder is dropped."""
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))


def _respelt(text: str, gates: Collection[str], work: Work) -> Iterator[View]:
    if "&" in text:
        work.spend(_UNITS_PER_RESPELT_CHAR * len(text))
        plain = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
        if plain != text:
            yield View("html_entities", plain, False)
    if "%" in text and _PERCENT.search(text):
        work.spend(_UNITS_PER_RESPELT_CHAR * len(text))
        yield View("percent_encoding", unquote(text), False)
    if "\\" in text or "+" in text:
        work.spend(_UNITS_PER_RESPELT_CHAR * len(text))
        plain = _ESCAPES.sub(_unescaped, text)
        if plain != text:
            yield View("escapes", plain, False)
    if "spaced" in gates and _SPACED.search(text):
        work.spend(_UNITS_PER_RESPELT_CHAR * len(text))
        yield View("spaced_letters", _SPACED_WORD.sub(lambda run: _SPACER.sub("", run[0]), text), False)
    if "morse" in gates and _MORSE.search(text):
        work.spend(_UNITS_PER_RESPELT_CHAR * len(text))
        yield View("morse", _MORSE_LETTER.sub(lambda code: _MORSE_CODE.get(code[1], " "), text), False)


def _unescaped(match: re.Match[str]) -> str:
    code = int(next(group for group in match.groups() if group), 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else " "


def _blobs(text: str, gates: Collection[str], work: Work) -> Iterator[View]:
    opened = {*gates, "codes"} if "\\x" in text else gates
    if len(text) < _PRINTABLE_CHARS_MIN * 2 or not opened:
        return
    work.spend(_UNITS_PER_BLOB_CHAR * len(text))
    without_media = _DATA_URI.sub(_without_media, text) if "data:" in text else text
    for pattern, how, any_of in _BLOBS:
        if any_of.isdisjoint(opened):
            continue
        for match in pattern.finditer(without_media):
            work.spend(_UNITS_PER_BLOB)
            found = list(_unpacked(_decoded(match[0], how), how, work))
            for first, respell in _RESPELT_BLOBS.get(how, {}).items() if not found else ():
                work.spend(_UNITS_PER_BLOB + _UNITS_PER_READ_CHAR * len(match[0]))
                found += _unpacked(_decoded(respell(match[0].rstrip("=")), how), f"{first} > {how}", work)
            yield from found


def _without_media(match: re.Match[str]) -> str:
    """Blank an inline image or sound, but keep a text that merely claims to be one."""
    raw = _decoded(match[1], "base64")
    is_text = next(_text_view(raw, ""), None) is not None
    return match[0] if is_text and not raw.lstrip().startswith(_MARKUP) else " "


def _unpacked(raw: bytes, how: str, work: Work) -> Iterator[View]:
    """Yield the text of a decoded, possibly compressed blob, and a view without text if it exceeds what is read."""
    packed = _PACKED.get(raw[:2])
    if packed is None:
        yield from _text_view(raw, how)
        return
    stream = zlib.decompressobj(_ANY_WINDOW)
    unpacked = b""
    # Without the checksum at its end: a wrong one must not hide what was packed.
    raw = raw[: -_GZIP_TRAILER_BYTES if packed == "gzip" else -_ZLIB_TRAILER_BYTES]
    try:
        while raw and len(unpacked) < DEFAULT_LIMITS.unpacked_bytes_max:
            work.spend(_UNITS_PER_CHUNK)
            unpacked += stream.decompress(raw, _CHUNK_BYTES)
            raw = stream.unconsumed_tail
            if stream.eof:
                # Another member may follow; what is none ends the text, and hides nothing that stood before it.
                raw, stream = stream.unused_data, zlib.decompressobj(_ANY_WINDOW)
    except zlib.error:
        raw = b""
    for view in _text_view(unpacked, f"{how} > {packed}"):
        yield view
        if raw:
            yield View(view.how, "", is_blob=False)


def _decoded(blob: str, how: str) -> bytes:
    try:
        if how == "base64":
            packed = "".join(blob.split()).rstrip("=").translate(_URL_SAFE)
            # One digit more than four holds no byte.
            packed = packed[: len(packed) - (len(packed) % 4 == 1)]
            return base64.b64decode(packed + "=" * (-len(packed) % 4))
        if how == "base32":
            packed = blob.rstrip("=")
            return base64.b32decode(packed + "=" * (-len(packed) % 8))
        if how == "hex":
            digits = re.sub(r"0x|\\x|[ :,]", "", blob)
            return binascii.unhexlify(digits[: len(digits) // 2 * 2])
        if how == "binary":
            return _bytes_of(re.sub("[ ,]", "", blob))
        return bytes(int(code) & 0xFF for code in re.findall(r"\d+", blob))
    except (binascii.Error, ValueError):
        return b""


def _text_view(raw: bytes, how: str) -> Iterator[View]:
    """A decoded blob counts only if all of it is printable, and says something if it is mostly letters and blanks."""
    if len(raw) >= _UTF16_BYTES_MIN and raw[1::2].count(0) * 4 > len(raw):
        raw = raw[: len(raw) // 2 * 2].decode("utf-16-le", "replace").encode()
        how += " > utf-16"
    try:
        text = raw.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        if error.start < len(raw) - 3 or error.start < _PRINTABLE_CHARS_MIN:
            return
        text = raw[: error.start].decode("utf-8")
    text = text.rstrip("\x00")
    shown = text if text.isprintable() else _FORMAT.sub(" ", text)
    if len(text) >= _PRINTABLE_CHARS_MIN and shown.isprintable():
        is_said = (sum(map(str.isalpha, shown)) + shown.count(" ")) * 5 >= len(shown) * 3
        yield View(how, text, is_blob=True, is_said=is_said)
