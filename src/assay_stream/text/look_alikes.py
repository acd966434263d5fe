"""Skeletons: what a reader takes a tool name for, so that names that look alike are equal.

1. The skeleton of UTS #39, section 4, with Unicode's own table of confusable characters (``data/confusables.txt``).
   Whatever follows is worked out from it alone: names that UTS #39 calls confusable are always equal here.
2. What a reader does not see, compatibility forms, case and accents do not count.
3. Nor do separators, nor the difference between a few more letters: tool names are short and mostly ASCII.
"""

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from assay_stream.canonical.digest import jcs_digest
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.text.normalization import without_long_runs
from assay_stream.text.words import LOOKALIKES, as_read, plain_form

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
