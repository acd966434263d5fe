"""Words and names: a text as its reader understands it, whatever it was dressed in.

``as_read`` takes off what a reader does not see; ``Words`` splits the rest into words, in any script. Han, Kana,
Hangul, Thai and Lao have no dependable spaces, so there each character is a word. Words keep their place in the
text. A line's end or a colon moves the next word further away, and a full stop, a semicolon, an empty line or the
next item of a list so far that no rule reaches over it.

Normalisation sorts runs of combining marks by insertion, which takes time in the square of a run's length, and
some characters become up to eighteen.

1. The skeleton of UTS #39, section 4, with Unicode's own table of confusable characters (``data/confusables.txt``).
   Whatever follows is worked out from it alone: names that UTS #39 calls confusable are always equal here.
2. What a reader does not see, compatibility forms, case and accents do not count.
3. Nor do separators, nor the difference between a few more letters: tool names are short and mostly ASCII.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from assay_stream.canonical.digest import jcs_digest
from assay_stream.limits import DEFAULT_LIMITS

_FIRST, _END = 0xA0, 0x20000
"""Code points that can cost more: every non-starter and every long expansion is among them."""
_HANGUL = range(0xAC00, 0xD7A4)
_BLOCK = 32
"""Code points that are looked at together. The range is so many times a number."""
_EXPANSION_MIN = 4
_RUN_MIN = 8
_STREAM_SAFE_MAX = 30
_UNITS_PER_CHAR = 3
_UNITS_PER_EXPANDING_CHAR = 25
_RUN_SQUARE_PER_UNIT = 4


def units_to_normalize(text: str) -> int:
    """Return the units of work that it takes to bring a text into NFKC, fold its case and split it into words."""
    if text.isascii():
        return len(text) // 4
    units = _UNITS_PER_CHAR * len(text)
    expanding, sorted_ = _characters()
    if not expanding.set.isdisjoint(text):
        units += _UNITS_PER_CHAR * len(text)
        units += _UNITS_PER_EXPANDING_CHAR * sum(len(run) for run in expanding.runs.findall(text))
    if not sorted_.set.isdisjoint(text):
        units += _UNITS_PER_CHAR * len(text)
        units += sum(len(run) ** 2 // _RUN_SQUARE_PER_UNIT for run in sorted_.runs.findall(text))
    return units


def without_long_runs(text: str) -> str:
    """Return a text whose runs of combining marks end after as many as stream-safe text has (UAX 15, section 13)."""
    if text.isascii():
        return text
    sorted_ = _characters()[1]
    if sorted_.set.isdisjoint(text):
        return text
    return sorted_.runs.sub(lambda run: run[0][:_STREAM_SAFE_MAX], text)


class _Characters(NamedTuple):
    set: frozenset[str]
    runs: re.Pattern[str]


@cache
def _characters() -> tuple[_Characters, _Characters]:
    """Return the characters that become many, and those whose runs are sorted."""
    expanding, sorted_ = [], []
    for code in _decomposed():
        form = unicodedata.normalize("NFKD", chr(code))
        if unicodedata.combining(form[0]):
            sorted_.append(chr(code))
        elif len(form) >= _EXPANSION_MIN:
            expanding.append(chr(code))
    return (
        _Characters(frozenset(expanding), re.compile(f"[{''.join(expanding)}]+")),
        _Characters(frozenset(sorted_), re.compile(f"[{''.join(sorted_)}]{{{_RUN_MIN},}}")),
    )


def _decomposed() -> Iterator[int]:
    """Yield every code point that a decomposition changes or moves, but Hangul; most blocks have none."""
    for first in range(_FIRST, _END, _BLOCK):
        codes = range(first, first + _BLOCK)
        block = "".join(map(chr, codes))
        if not unicodedata.is_normalized("NFKD", block) or any(map(unicodedata.combining, block)):
            yield from (code for code in codes if code not in _HANGUL)


SINGLE_CHARACTER_WORDS = "぀-ヿ㐀-䶿一-鿿豈-﫿가-힣\u0e00-\u0eff"
_WORD = re.compile(
    rf"[{SINGLE_CHARACTER_WORDS}]|[^\W_{SINGLE_CHARACTER_WORDS}]++|[.!?;:。！？；।؟]++(?=\s|$|[{SINGLE_CHARACTER_WORDS}])"
    r"|\n[ \t]*+(?:\n|[-*•](?=[ \t]))|\n"
)
_PLAIN_WORD = re.compile("[a-z0-9]++")
_LINE_END_WORDS, _SENTENCE_END_WORDS = 3, 50
_WEAK_ENDS = frozenset([":", "\n"])
_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\-_])")
_HIDDEN_FILLERS = "\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5\u180b\u180c\u180d\u180e"
_HIDDEN = re.compile(
    "[\xad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    f"{_HIDDEN_FILLERS}\U000e0000-\U000e01ef\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)

# Letters that are drawn as a Latin letter, after UTS #39 (confusables), for the scripts seen in such attacks. They
# are looked up beside the word itself, so text in those scripts keeps its own meaning.
_CONFUSABLE_PAIRS = (
    "аa еe оo рp сc уy хx іi јj ѕs ԁd һh ӏl ԛq ԝw мm нh кk тt вb гr зe пn ьb єe ѵv "
    "αa οo ιi κk ρp τt υu νv χx ηn εe ωw γy σo βb "
    "ɡg ıi ɑa ʏy ɩi ᴀa ʙb ᴄc ᴅd ᴇe ɢg ʜh ᴊj ᴋk ʟl ᴍm ɴn ᴏo ᴘp ʀr ꜱs ᴛt ᴜu ᴠv ᴡw ᴢz ꜰf ɪi"
)
LOOKALIKES = {ord(pair[0]): pair[1] for pair in _CONFUSABLE_PAIRS.split()}
"""Letters of other scripts to the Latin letter that they are drawn as."""
_LEET = str.maketrans("013457@$8", "oleastasb")
_LEET_I = str.maketrans("013457@$8", "oieastasb")
_ARABIC = str.maketrans("أإآٱىة", "ااااية", "ـ")


def as_read(text: str) -> str:
    """Return a text without what its reader does not see, in Unicode's compatibility form (NFKC)."""
    if text.isascii() and text.isprintable():
        return text
    shown = unicodedata.normalize("NFKC", without_long_runs(_HIDDEN.sub("", _ANSI.sub("", text))))
    if shown.isascii():
        return shown
    marks = {char for char in set(shown) if unicodedata.category(char) == "Mn"}
    return "".join(char for char in shown if char not in marks) if marks else shown


def plain_form(word: str) -> str:
    folded = word.casefold()
    if folded.isascii():
        return folded
    marks = unicodedata.normalize("NFKD", folded.translate(_ARABIC))
    return unicodedata.normalize("NFC", "".join(char for char in marks if unicodedata.category(char) != "Mn"))


def forms_of(text: str) -> list[str]:
    """Return the words of a visible text in their plain form, as ``Words`` has them in ``forms``."""
    words = [word for word in _WORD.findall(text) if word[0].isalnum()]
    plain = {word: plain_form(word) for word in set(words)}
    return [plain[word] for word in words]


def plain_forms(lowered: str) -> list[str]:
    """Return the same, faster.

    Args:
        lowered: a visible text in lowercase, in which every letter and digit is ASCII.
    """
    return _PLAIN_WORD.findall(lowered)


def other_forms(word: str) -> Iterator[str]:
    """Yield what a word in its plain form may stand for: letters of other scripts and digits for Latin letters."""
    if not word.isascii():
        folded = word.translate(LOOKALIKES)
        if folded.isascii():
            yield folded
    elif not word.isalpha() and not word.isdigit():
        yield word.translate(_LEET)
        yield word.translate(_LEET_I)


def mixes_scripts(word: str) -> bool:
    """Return True if a word mixes Latin letters with letters of another script that are drawn as Latin ones."""
    if word.isascii():
        return False
    letters = word.casefold()
    lookalike = [char for char in letters if ord(char) in LOOKALIKES and not char.isascii()]
    foreign = [char for char in letters if char in _CYRILLIC_OR_GREEK]
    return bool(lookalike and foreign == lookalike and any("a" <= char <= "z" for char in letters))


def mixed_words(text: str) -> Iterator[str]:
    """Yield the words of a visible text that are not ASCII, and not all of them Cyrillic or Greek."""
    for word in set(_WORD.findall(text)):
        if len(word) > 1 and not word.isascii() and not _UNMIXED.fullmatch(word):
            yield word


_UNMIXED = re.compile("[\u0370-\u052f]+")
_CYRILLIC_OR_GREEK = frozenset(chr(code) for code in (*range(0x370, 0x400), *range(0x400, 0x530)))


class Words:
    """The words of one visible text.

    Args:
        text: the visible text.
    """

    __slots__ = ("_spans", "forms", "places", "sentences", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.forms: list[str] = []
        """Each word in its plain form."""
        self.places: list[int] = []
        """The number of each word, with a leap after each sentence."""
        self.sentences: list[tuple[int, int]] = []
        """The first word of each sentence and the one after its last."""
        self._spans: list[tuple[int, int]] | None = None
        forms, places = self.forms, self.places
        place, first = 0, 0
        for word in _WORD.findall(text.lower() if text.isascii() else text):
            if word[0].isalnum():
                forms.append(word)
                places.append(place)
                place += 1
            elif forms:
                if len(forms) > first:
                    self.sentences.append((first, len(forms)))
                    first = len(forms)
                leap = _LINE_END_WORDS if word in _WEAK_ENDS else _SENTENCE_END_WORDS
                place = max(place, places[-1] + 1 + leap)
        if len(forms) > first:
            self.sentences.append((first, len(forms)))
        if not text.isascii():
            plain = {word: plain_form(word) for word in set(forms)}
            self.forms = [plain[word] for word in forms]

    @property
    def spans(self) -> list[tuple[int, int]]:
        if self._spans is None:
            self._spans = [word.span() for word in _WORD.finditer(self.text) if word[0][0].isalnum()]
        return self._spans

    def sentence_keys(self) -> list[str]:
        """Return each sentence as its words in their plain form."""
        return [" ".join(self.forms[first:end]) for first, end in self.sentences]


# An em dash has the katakana length mark as its prototype, which parts words only among ASCII letters.
_SEPARATORS = re.compile(r"[-_./:\s\u2010-\u2015\u2212]+|(?<=[a-z0-9])\u30fc+(?=[a-z0-9])")
_ALIKE = str.maketrans({"0": "o", "1": "l", "i": "l", "|": "l", "!": "l"})
_PAIRS = (("rn", "m"), ("vv", "w"))


def skeleton(name: str) -> str:
    """Return what look-alike tool names have in common. It is for comparing, not for showing.

    Args:
        name: a tool name. A very long one is compared by what UTS #39 says alone.
    """
    chars_max = DEFAULT_LIMITS.drawn_name_chars_max
    drawn, rest = uts39_skeleton(name[:chars_max]), name[chars_max:]
    if rest or len(drawn) > chars_max:
        return jcs_digest([drawn, rest]).hex
    drawn = plain_form(as_read(drawn.translate(_letters())))
    # Compatibility forms and lowercase letters have prototypes of their own.
    drawn = plain_form(uts39_skeleton(drawn).translate(_letters()))
    for pair, letter in _PAIRS:
        drawn = drawn.replace(pair, letter)
    # A name of nothing but separators is like no other.
    bare = _SEPARATORS.sub("", drawn).translate(_ALIKE) or drawn
    # A server may send a name of any length; as a key it has to be short.
    return bare if len(bare) <= DEFAULT_LIMITS.skeleton_chars_max else jcs_digest(bare).hex


def uts39_skeleton(text: str) -> str:
    """Return the skeleton of UTS #39, section 4: decomposed, each character as its prototype, decomposed again.

    Long runs of combining marks are cut: to sort them takes time in the square of their length.
    """
    if text.isascii():
        return text.translate(_prototypes())
    decomposed = unicodedata.normalize("NFD", without_long_runs(text))
    return unicodedata.normalize("NFD", decomposed.translate(_prototypes()))


@cache
def _prototypes() -> Mapping[int, str]:
    """Each confusable character to its prototype."""
    table = (files(__package__) / "data" / "confusables.txt").read_text(encoding="utf-8")
    prototypes: dict[int, str] = {}
    for line in table.splitlines():
        if not line.startswith("#"):
            prototype, _, chars = line.partition(":")
            text = "".join(chr(int(code, 16)) for code in prototype.split())
            prototypes |= {int(char, 16): text for char in chars.split()}
    return prototypes


@cache
def _letters() -> Mapping[int, str]:
    """Prototypes that are not ASCII to the letter or digit that we take them for.

    They are those of letters that are drawn alike in a script seen in attacks, or that stand for it (superscripts).
    """
    compatible = {code: unicodedata.normalize("NFKC", chr(code)) for code in _prototypes()}
    known = {code: form for code, form in compatible.items() if form.isascii() and form.isalnum()} | LOOKALIKES
    letters = {uts39_skeleton(chr(code)): letter for code, letter in known.items()}
    return {
        ord(prototype): letter for prototype, letter in letters.items() if len(prototype) == 1 and prototype > "\x7f"
    }
