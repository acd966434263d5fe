"""Skeletons: what a reader takes a tool name for, so that names which look alike are equal.

In the spirit of UTS #39, section 4 (confusable detection). Its own tables are made for identifiers of any script;
tool names are short and mostly ASCII, so a few pairs more are equal here, and separators and case do not count.
"""

from __future__ import annotations

import re

from assay_stream.canonical.digest import jcs_digest
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.text.words import LOOKALIKES, plain_form, visible

_SEPARATORS = re.compile(r"[-_./:\s\u2010-\u2015\u2212]+")
_ALIKE = str.maketrans({"0": "o", "1": "l", "i": "l", "|": "l", "!": "l"})
_PAIRS = (("rn", "m"), ("vv", "w"))


def skeleton(name: str) -> str:
    """Return what look-alike tool names have in common. It is for comparing, not for showing.

    Source: UTS #39, section 4, with separators, case and a few ASCII pairs added.

    Args:
        name: a tool name.
    """
    drawn = plain_form(visible(name)).translate(LOOKALIKES)
    for pair, letter in _PAIRS:
        drawn = drawn.replace(pair, letter)
    # A name of nothing but separators is like no other.
    bare = _SEPARATORS.sub("", drawn).translate(_ALIKE) or name
    # A server may send a name of any length; as a key it has to be short.
    return bare if len(bare) <= DEFAULT_LIMITS.skeleton_chars_max else jcs_digest(bare).hex
