"""Words: a text as its reader understands it, whatever it was dressed in.

``as_read`` takes off what a reader does not see; ``Words`` splits the rest into words, in any script. Han, Kana,
Hangul, Thai and Lao have no dependable spaces, so there each character is a word. Words keep their place in the
text, and a sentence's end moves the next word further away, so that a rule with a short reach stays within its
sentence.
"""

import re
import unicodedata
from collections.abc import Iterator

from assay_stream.text.normalization import without_long_runs

SINGLE_CHARACTER_WORDS = "぀-ヿ㐀-䶿一-鿿豈-﫿가-힣\u0e00-\u0eff"
_WORD = re.compile(
    rf"[{SINGLE_CHARACTER_WORDS}]|[^\W_{SINGLE_CHARACTER_WORDS}]++|[.!?;:。！？；।؟]++(?=\s|$|[{SINGLE_CHARACTER_WORDS}])|\n"
)
_PLAIN_WORD = re.compile("[a-z0-9]++")
_SENTENCE_END_WORDS = 3
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
    return "".join(char for char in shown if unicodedata.category(char) != "Mn") if _has_marks(shown) else shown


def _has_marks(text: str) -> bool:
    return any(unicodedata.combining(char) for char in set(text)) or any(
        unicodedata.category(char) == "Mn" for char in set(text)
    )


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
            elif len(forms) > first:
                self.sentences.append((first, len(forms)))
                first = len(forms)
                place += _SENTENCE_END_WORDS
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
