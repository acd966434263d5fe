"""Globs over names, as operators write them in rules."""

import re
from fnmatch import translate
from functools import lru_cache

from assay_stream.errors import InputError

_GLOB = re.compile(r"(?:\[!?[^\[\]!][^\[\]]*\]|[^\[\]])*+")


@lru_cache(maxsize=1_024)
def compile_glob(glob: str) -> re.Pattern[str]:
    """Compile a glob.

    Args:
        glob: ``*`` for any text, ``?`` for one character, ``[abc]`` or ``[!abc]`` for one of a set.

    Raises:
        InputError: ``bad_pattern`` for a set that is empty or not closed.
    """
    if not _GLOB.fullmatch(glob):
        raise InputError("bad_pattern", "a set in the pattern is empty, nested or not closed: write [abc]")
    return re.compile(translate(glob))
