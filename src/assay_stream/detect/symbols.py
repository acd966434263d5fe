"""A text as sentences of symbols: words, with names, addresses and numbers replaced by what they are.

"Before using `get_invoice`, call 'sync-ledger'" and "Before using `add`, call 'open_door'" are one sentence to a
model that is being steered, and so they are here: ``before using <other> call <other>``. What a name is depends on
what its server offers: ``<own>`` is a tool of the same list, ``<param>`` a parameter or a listed value of the same
definition, ``<self>`` the definition's own name, and ``<other>`` a name of none of these, ``<named>`` where it is
quoted and written as packages, files and skills are named as well.

A list can be made so that a foreign name looks like the server's own prefix or like a parameter. A sentence that reads
a name so is marked as doubtful, and ``OfferedNames.strictly`` reads it once more without the benefit of the doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from typing import Final, NamedTuple, cast

from assay_stream.detect.catalog import CATALOG
from assay_stream.detect.surfaces import name_words
from assay_stream.text.words import SINGLE_CHARACTER_WORDS

WORD_CHARS_MAX: Final = 24
"""Longer words are cut: no vocabulary has them, and a run of letters costs no more than a word."""
SENTENCE_SYMBOLS_MAX: Final = 40
"""A sentence ends with the run of characters that reaches this, and is cut at twice as many."""

_CHUNK = re.compile(f"[{SINGLE_CHARACTER_WORDS}]|[^\\s{SINGLE_CHARACTER_WORDS}]+")
# Linear, whatever the run is: a repetition is possessive, and starts only where it cannot be part of an earlier one.
_TOKEN = re.compile(
    r"""
  (?P<url>(?:(?:https?|ftp|wss?|hxxps?)://|\bgit@[\w.-]{1,64}+:)[^<>"'`)\]}|]++)
| (?P<mail>[\w.+-]{1,64}+@[\w-]{1,63}+(?:\.[\w-]{1,63}+){1,8}+)
| (?P<path>(?<!\w)(?:~|\.{1,2})?/[\w.$*-]++(?:/[\w.$*-]++)*+/?|\b[A-Za-z]:\\[^'"`]++
          |(?<!\w)\.(?:env|ssh|aws|npmrc|netrc|pem|cursor|kube|bashrc|zshrc|profile|bash_profile)(?![\w-])[\w./-]*+)
| (?P<number>\d++(?:[,.:-]\d++)*+)
| (?P<name>[^\W\d][\w$]*+(?:(?:::|:(?!true\b|false\b|null\b|\d)|[./-])[\w$]++)*+)
| (?P<end>(?<![.!?;:。！？；।؟])[.!?;:。！？；।؟]++(?=["'`)\]*_>]*+$))
| (?P<mark>[\[<\#])
""",
    re.VERBOSE,
)
# iCloud, eBay and gRPC are brands: what a tool does is told by more than a letter.
_CAMEL_CASE = re.compile(r"[a-z][a-z0-9]+(?:[A-Z][a-z0-9]*)+")
_NAME_PART = re.compile(r"[^\W_]++")
_SECRET_PATH = re.compile(
    r"ssh|id_rsa|\.env|aws|cred|token|secret|passw|shadow|key|wallet|cookie|history|netrc|npmrc|mcp\.json|\.cursor"
    r"|kube|\.pem",
    re.IGNORECASE,
)
_ROUTE = re.compile(r"/[\w-]++(?:/[\w*-]++)*+/?")
_FOLDERS = frozenset(CATALOG.words.folders.split())
"""A path without an ending and without any of these is an address of an API: ``/me/messages``."""
_FILE_NAME_CHARS = 40
"""Looked at behind a path that ends where a placeholder begins: a run of paths costs what it is long."""
_PUBLIC_KEY = re.compile(r"<[\w-]{1,32}>\.pub(?![\w/])")
_STARTUP_PATH = re.compile(
    r"(?:bash|zsh|bash_)(?:rc|profile)\.?$|(?:/|^)\.profile\.?$|/(?:etc|spool)/cron|authorized_keys|LaunchAgents|LaunchDaemons|autostart"
    r"|systemd|init\.d|rc\.local|git/hooks|sitecustomize|\.cursor/rules"
)
"""What runs by itself later on."""
_OPENING = frozenset("`'\"“‘<「")
_CLOSING = frozenset("`'\"”’>」(")
_PROTOCOL = frozenset((CATALOG.words.mcp_keys + CATALOG.words.json_schema_keys).split())
"""Names that MCP and JSON Schema define: `_meta.progressToken` is not a tool."""
_VERBS = frozenset(CATALOG.words.tool_verbs.split())
_JOINING = frozenset(CATALOG.words.joining.split())
_VALUES = frozenset(["id", "ids", "key", "keys", "token", "password", "secret", "url", "urls", "uri", "path", "name"])
"""Last words of names that hardly any tool has, unless it begins with what is done with such a value."""
_VALUE_VERBS = frozenset(CATALOG.words.value_verbs.split())
_ADDRESS_VALUE = re.compile(r"[a-z0-9](?:Id|Ids|Url|Urls|Uri)$")
_NUMBERED = re.compile(r"_(?:\d+|[Nn])$")
"""The end of a name that stands for many: Element_1 to Element_N."""
_NO_FUNCTIONS = frozenset(["function", "method", "callback"])
_PLAIN: Final = {"url": "<url>", "mail": "<mail>", "number": "<number>", "mark": "["}
_END: Final = "<end>"
_ENDS = frozenset(".!?;:")
_CAPITALS_CHARS_MIN = 4
_CALLED_CHARS_MIN = 4
_HYPHENS_MIN = 2
_ENDING = "…"
"""Distinguishes the end of a name from a beginning: no name has it."""
_CACHED_CHUNKS_MAX = 8_192
_CACHED_CHARS_MAX = 32


class Sentence(NamedTuple):
    """One sentence.

    Args:
        symbols: its words in lowercase, and the symbols for names, addresses and numbers.
        runs: for each symbol the index of its run of characters in the text, of ``spans_of``.
        is_doubtful: whether a name in it was taken for a parameter, a listed value or one of the server's own.
    """

    symbols: tuple[str, ...]
    runs: tuple[int, ...]
    is_doubtful: bool = False


class OfferedNames(NamedTuple):
    """What a definition and its list offer, to distinguish names in a text from those of something else.

    Args:
        own: keys (``name_key``) of the tools of the list.
        itself: key of the definition's own name.
        parameters: names of parameters and listed values of the definition, as they stand.
        families: beginnings of names, of ``families_of``, that are the server's: its hidden tools have them. Ends of
            its names, of ``endings_of``, count as well.
    """

    own: Set[str] = frozenset()
    itself: str = ""
    parameters: Set[str] = frozenset()
    families: Set[str] = frozenset()

    def strictly(self) -> OfferedNames:
        """Return only what the names themselves prove."""
        return OfferedNames(own=self.own, itself=self.itself)

    def kind_of(self, name: Name) -> int:
        """Return everything that determines the kind of a name, as bits."""
        return (
            (name.key == self.itself)
            | (name.key in self.own) << 1
            | (name.name in self.parameters) << 2
            | (not self.families.isdisjoint(name.families)) << 3
        )


class Name(NamedTuple):
    """A word that may be a name, with its key, its beginnings, and its kind where no such name is offered."""

    name: str
    key: str
    families: tuple[str, ...]
    otherwise: tuple[str, ...]


_Item = str | Name


class _Parts(NamedTuple):
    """The symbols of a run of characters, and whether they are independent of what is offered."""

    items: tuple[_Item, ...]
    is_plain: bool


def name_key(name: str) -> str:
    """Return the common key of the spellings of one name: ``send_email``, ``sendEmail`` and ``send-email``."""
    return "".join(_NAME_PART.findall(name)).lower()


def _is_thing(name: str) -> bool:
    """Return True if a name is rather a path's or a value's: ``models/text_to_image``, ``postId``, ``viewUrl``."""
    if "/" in name or _ADDRESS_VALUE.search(name) is not None:
        return True
    words = name_words(name)
    return bool(words) and words[-1] in _VALUES and words[0] not in _VALUE_VERBS


def families_of(name: str) -> tuple[str, ...]:
    """Return the first word of a name and the first two; nothing for a verb, which the tools of any server share."""
    words = name_words(name)[:2]
    return tuple(" ".join(words[:count]) for count in range(1, len(words) + 1)) if _is_noun_first(words) else ()


def endings_of(name: str) -> Iterator[str]:
    """Yield the ends of a name that may stand for it where its server's prefix is left out: two words or more."""
    words = name_words(name)
    for count in range(2, len(words)):
        yield _ENDING + "".join(words[-count:])


def _is_noun_first(words: Sequence[str]) -> bool:
    """Return True if the words of a name begin with none of the verbs that tool names begin with."""
    return bool(words) and words[0] not in _VERBS


def sentences_of(seen: str, offered: OfferedNames) -> Iterator[Sentence]:
    """Yield the sentences of a text as its reader sees it."""
    is_spaced = seen.isascii()
    number = -1
    symbols: list[str] = []
    runs: list[int] = []
    is_doubtful = False
    for line in seen.split("\n"):
        chunks = line.split() if is_spaced else _CHUNK.findall(line)
        if symbols and (not chunks or not chunks[0][0].islower() or _is_argument(chunks)):
            yield from _cut(symbols, runs, is_doubtful)
            symbols, runs, is_doubtful = [], [], False
        for chunk in chunks:
            number += 1
            if chunk.isalpha() and chunk.islower():
                symbols.append(chunk[:WORD_CHARS_MAX])
                runs.append(number)
                if len(symbols) < SENTENCE_SYMBOLS_MAX:
                    continue
            else:
                items, is_plain = _parsed(chunk) if len(chunk) <= _CACHED_CHARS_MAX else _parse(chunk)
                if is_plain:
                    symbols += cast("tuple[str, ...]", items)
                else:
                    is_doubtful |= _add(items, offered, symbols)
                runs += [number] * (len(symbols) - len(runs))
                if not symbols:
                    continue
            if symbols[-1] is _END or len(symbols) >= SENTENCE_SYMBOLS_MAX:
                if symbols[-1] is _END:
                    symbols.pop()
                if symbols:
                    yield from _cut(symbols, runs, is_doubtful)
                symbols, runs, is_doubtful = [], [], False
    if symbols:
        yield from _cut(symbols, runs, is_doubtful)


def _is_argument(chunks: Sequence[str]) -> bool:
    """Return True if a line begins like one about a parameter: ``limit: ...`` or ``limit (int): ...``."""
    if chunks[0][-1] == ":":
        return True
    return len(chunks) > 1 and chunks[1][0] == "(" and any(chunk.endswith("):") for chunk in chunks[1:4])


def _cut(symbols: list[str], runs: list[int], is_doubtful: bool) -> Iterator[Sentence]:
    """Yield the symbols of a sentence, in parts where one run of characters holds very many."""
    length = 2 * SENTENCE_SYMBOLS_MAX
    if 0 < len(symbols) <= length:
        yield Sentence(tuple(symbols), tuple(runs[: len(symbols)]), is_doubtful)
        return
    for start in range(0, len(symbols), length):
        end = min(start + length, len(symbols))
        yield Sentence(tuple(symbols[start:end]), tuple(runs[start:end]), is_doubtful)


def spans_of(seen: str) -> list[tuple[int, int]]:
    """Return the place in the text of each run of characters in ``Sentence``."""
    pattern = re.compile(r"\S+") if seen.isascii() else _CHUNK
    return [run.span() for run in pattern.finditer(seen)]


def names_of(seen: str) -> tuple[Name, ...]:
    """Return the names in a text whose kind depends on what is offered."""
    names: dict[Name, None] = {}
    for chunk in seen.split() if seen.isascii() else _CHUNK.findall(seen):
        if not (chunk.isalpha() and chunk.islower()):
            parts = _parsed(chunk) if len(chunk) <= _CACHED_CHARS_MAX else _parse(chunk)
            if not parts.is_plain:
                names.update((item, None) for item in parts.items if not isinstance(item, str))
    return tuple(names)


def _add(items: tuple[_Item, ...], offered: OfferedNames, symbols: list[str]) -> bool:
    """Add the symbols of a run of characters; return True if one of them is doubtful."""
    is_doubtful = False
    for item in items:
        if isinstance(item, str):
            symbols.append(item)
        elif item.key == offered.itself:
            symbols.append("<self>")
        elif item.key in offered.own:
            symbols.append("<own>")
        elif item.name in offered.parameters:
            symbols.append("<param>")
            is_doubtful |= item.otherwise[0] != "<quoted>"
        elif not offered.families.isdisjoint(item.families):
            symbols.append("<own>")
            is_doubtful = True
        else:
            symbols.extend(item.otherwise)
    return is_doubtful


def _parse(chunk: str) -> _Parts:
    """Split a run of characters between blanks into symbols."""
    # Most runs are a word with a bracket, a comma or a full stop.
    is_end = chunk[-1] in _ENDS
    word = chunk.lstrip("(")[:-1] if is_end else chunk.lstrip("(").rstrip(",)")
    if word.isalpha() and word.isascii() and (word.islower() or word.istitle()):
        symbol = word.lower()[:WORD_CHARS_MAX]
        return _Parts((symbol, _END) if is_end else (symbol,), is_plain=True)
    items: list[_Item] = []
    for token in _TOKEN.finditer(chunk):
        kind = token.lastgroup or ""
        if kind == "name":
            items += _named(chunk, token)
        elif kind == "path":
            items.append(_path_symbol(token[0], following=chunk[token.end() : token.end() + _FILE_NAME_CHARS]))
        elif kind == "end":
            items.append(_END)
        else:
            items.append(_PLAIN[kind])
    return _Parts(tuple(items), is_plain=not any(isinstance(item, Name) for item in items))


_parsed = lru_cache(_CACHED_CHUNKS_MAX)(_parse)


def _path_symbol(path: str, *, following: str) -> str:
    # /token/{id}/holders and /history are addresses of an API, and no files; ~/.ssh/<name>.pub is for others to have;
    # and a bare .env, or **/.env, is the project's own.
    is_route = _ROUTE.fullmatch(path) is not None and _FOLDERS.isdisjoint(path.lower().split("/"))
    if is_route and (following.startswith("{") or path.count("/") == 1):
        return "<route>"
    is_public = path.rstrip(".").endswith(".pub") or _PUBLIC_KEY.match(following)
    if following.startswith("{") or is_public or path.removeprefix("/").startswith(".env"):
        return "<path>"
    if _STARTUP_PATH.search(path) is not None:
        return "<startup>"
    if _SECRET_PATH.search(path) is not None:
        return "<secret>"
    return "<route>" if is_route else "<path>"


def _named(chunk: str, token: re.Match[str]) -> Iterator[_Item]:
    name = token[0]
    start, end = token.span()
    following = chunk[end : end + 1]
    is_quoted = start > 0 and chunk[start - 1] in _OPENING and following in _CLOSING and following != ""
    # COUNT(*) is SQL's, API_KEY a setting and TEXT_GBK a value: hardly any tool is named in capitals alone.
    is_constant = name.isupper()
    is_called = (
        following == "("
        and len(name) >= _CALLED_CHARS_MIN
        and not is_constant
        and not chunk.startswith("(s)", end)
        and "." not in name  # A method is code's: page.click(...).
        and name not in _NO_FUNCTIONS
    )
    is_cased = "_" in name.strip("_") or _CAMEL_CASE.fullmatch(name) is not None
    # Three parts behind a verb, as in "use extract-web-data", are a tool's name rather than a compound.
    words = name_words(name)
    is_hyphenated = name.count("-") >= _HYPHENS_MIN and not _is_noun_first(words) and _JOINING.isdisjoint(words)
    is_marked = is_cased or is_hyphenated or (is_quoted and ("-" in name or "." in name))
    is_name = is_marked and name.partition(".")[0] not in _PROTOCOL
    is_name = is_name and not is_constant and not (_NUMBERED.search(name) and _is_noun_first(words))
    if following == "=" and not is_quoted:
        yield "<param>"
        return
    if is_name or is_called:
        is_other = (is_called or is_cased) and not _is_thing(name)
        key = name_key(name)
        yield Name(name, key, (*families_of(name), _ENDING + key), ("<other>" if is_other else "<named>",))
        return
    # In "a paid-call" nothing is called: the later words of a compound are words of their own.
    parts = tuple(
        ("-" if name[part.start() - 1 : part.start()] == "-" else "") + part[0].lower()[:WORD_CHARS_MAX]
        for part in _NAME_PART.finditer(name)
    )
    if is_quoted:
        yield Name(name, name_key(name), (), ("<quoted>", *parts))
    else:
        yield from parts
        if len(name) >= _CAPITALS_CHARS_MIN and name.isupper() and "_" not in name:
            yield "<capitals>"
