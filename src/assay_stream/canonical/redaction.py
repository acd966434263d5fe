"""Redaction: secrets leave a value before anything of it is hashed.

A digest over a short secret can be guessed back, so what looks like one is replaced first, by a text that says
what stood there: ``[REDACTED:<category>:<pattern id>]``. Two rules:

1. The whole value under a sensitive key name (``password``, ``clientSecret``) is replaced.
2. In every other text, each match of an enabled rule is replaced, in one pass from the left.

Which rules are enabled, and which further key names are sensitive, is a ``Redaction``. It decides digests:
evidence whose hashes were made under another than the default one names it.

Keys are never changed, nor are numbers outside rule 1. Redaction is a guess: it lowers the harm of a careless
caller and proves nothing about what is left.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

from assay_stream.canonical.digest import Digest, jcs_digest
from assay_stream.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionRule:
    """One pattern of what is not to be hashed; ``redaction.toml`` says what its fields mean."""

    id: str
    category: str
    hints: tuple[str, ...]
    regex: str
    reason: str
    costly: bool = False
    enabled: bool = True

    def replacement(self) -> str:
        return f"[REDACTED:{self.category}:{self.id}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """Tokens with a prefix that their issuer documents. They count as ``secret_token``."""

    name: str
    hints: tuple[str, ...]
    regex: str
    reason: str


_DATA = tomllib.loads((files(__package__) / "redaction.toml").read_text(encoding="utf-8"))
_PARTS: dict[str, str] = _DATA["parts"]
_OF_ISSUERS = "secret_token"


def _expanded(parts: Sequence[str]) -> str:
    return re.sub(r"\(\?&(\w+)\)", lambda named: _expanded([_PARTS[named[1]]]), "".join(parts))


ISSUED = tuple(
    Issuer(**row | {"hints": tuple(row["hints"]), "regex": _expanded(row["regex"])}) for row in _DATA["issuer"]
)
_PARTS["issued"] = "|".join(issuer.regex for issuer in ISSUED)


def _rule(row: dict[str, object], hints: Sequence[str], regex: Sequence[str]) -> RedactionRule:
    issued = [hint for issuer in ISSUED for hint in issuer.hints] if row["id"] == _OF_ISSUERS else []
    return RedactionRule(**row | {"hints": (*hints, *issued), "regex": _expanded(regex)})  # type: ignore[arg-type]


RULES = tuple(_rule(row, row["hints"], row["regex"]) for row in _DATA["rule"])
SENSITIVE_NAMES: tuple[str, ...] = tuple(_DATA["sensitive_names"])
"""Key names whose value is replaced whole: as the whole name or its end, case and separators aside."""


KEY_NAME = "[REDACTED:secret:key_name]"
"""What stands where the value under a sensitive key name stood."""

_BY_DEFAULT = frozenset(rule.id for rule in RULES if rule.enabled)
_REPLACEMENTS = {rule.id: rule.replacement() for rule in RULES}
_CONFIGURATION_SCHEMA = "assay-stream.redaction.v1"
_NAME_TAIL_CHARS = 64
_NOT_IN_NAMES = re.compile(r"[^a-z]+")


@dataclass(frozen=True, slots=True)
class Redaction:
    """One configuration of redaction. Make it with ``redaction_with``.

    Args:
        names: further sensitive key names, in lowercase letters alone.
    """

    rules: frozenset[str] = _BY_DEFAULT
    names: frozenset[str] = frozenset()
    is_default: bool = field(init=False, repr=False, compare=False)
    """Whether it is the default: then evidence does not name it."""
    id: str = field(init=False, repr=False, compare=False)
    """What evidence names it by: the digest of its canonical form, ``sha256:<hex>``."""
    suffixes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Every sensitive ending of a key name."""
    hints: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)
    """Each hint of an enabled rule, and the rule's id where it is costly, else ``""``."""

    def __post_init__(self) -> None:
        configuration = {"schema": _CONFIGURATION_SCHEMA, "rules": sorted(self.rules), "names": sorted(self.names)}
        hints = tuple(
            (hint, rule.id if rule.costly else "")
            for rule in RULES
            if rule.id in self.rules
            for hint in dict.fromkeys(rule.hints)
        )
        object.__setattr__(self, "is_default", self.rules == _BY_DEFAULT and not self.names)
        object.__setattr__(self, "id", str(jcs_digest(configuration)))
        object.__setattr__(self, "suffixes", (*SENSITIVE_NAMES, *sorted(self.names)))
        object.__setattr__(self, "hints", hints)


DEFAULT_REDACTION = Redaction()


def redaction_with(*, enable: Iterable[str] = (), disable: Iterable[str] = (), names: Iterable[str] = ()) -> Redaction:
    """Return the default configuration with some rules turned on or off, and further sensitive key names.

    Args:
        names: key names; case and everything but the letters a to z aside, as with the built-in ones.

    Raises:
        ConfigurationError: ``bad_redaction``: an id that no rule has or that stands on both sides, or a name
            without letters or too long to be found.
    """
    on, off = frozenset(enable), frozenset(disable)
    if not on | off <= _REPLACEMENTS.keys():
        raise ConfigurationError("bad_redaction", f"no such rule; the rules are: {', '.join(_REPLACEMENTS)}")
    if on & off:
        raise ConfigurationError("bad_redaction", "a rule is turned on and off: name it on one side only")
    letters = []
    for name in names:
        plain = _NOT_IN_NAMES.sub("", name.lower())
        if not plain or len(name) > _NAME_TAIL_CHARS:
            raise ConfigurationError(
                "bad_redaction", f"a key name has a letter from a to z, and {_NAME_TAIL_CHARS} characters at most"
            )
        letters.append(plain)
    return Redaction(rules=(_BY_DEFAULT | on) - off, names=frozenset(letters).difference(SENSITIVE_NAMES))


def redacted_digest(value: Any, redaction: Redaction = DEFAULT_REDACTION) -> Digest:
    """Return the digest of a value's canonical form after redaction.

    Raises:
        InputError: as ``canonicalize``.
    """
    return jcs_digest(redact(value, redaction))


def redact(value: Any, redaction: Redaction = DEFAULT_REDACTION) -> Any:
    """Return a copy of a JSON value without what looks like a secret. Redacting it again changes nothing."""
    suffixes = redaction.suffixes
    result: list[Any] = [None]
    pending: list[tuple[Any, Any, Any]] = [(result, 0, value)]
    while pending:
        target, place, item = pending.pop()
        if isinstance(item, str):
            target[place] = _redact_text(item, redaction)
        elif isinstance(item, dict):
            target[place] = members = dict.fromkeys(item, KEY_NAME)
            pending.extend((members, name, child) for name, child in item.items() if not _is_sensitive(name, suffixes))
        elif isinstance(item, list | tuple):
            target[place] = items = [None] * len(item)
            pending.extend((items, index, child) for index, child in enumerate(item))
        else:
            target[place] = item
    return result[0]


def _redact_text(text: str, redaction: Redaction) -> str:
    lowered = text.lower()
    hinted = {costly for hint, costly in redaction.hints if hint in lowered}
    if not hinted:
        return text
    hinted.discard("")
    return _search(redaction.rules, frozenset(hinted)).sub(_replacement, text)


@lru_cache(maxsize=256)  # some configurations, each with more than the sets of costly rules there are
def _search(enabled: frozenset[str], costly: frozenset[str]) -> re.Pattern[str]:
    """Return the search for every enabled cheap rule and these costly ones, in the order of ``RULES``."""
    # The first alternatives keep what was replaced before as it is.
    replaced = map(re.escape, (KEY_NAME, *_REPLACEMENTS.values()))
    rules = (f"(?P<{rule.id}>{rule.regex})" for rule in RULES if _is_searched(rule, enabled, costly))
    return re.compile("|".join((*replaced, *rules)))


def _is_searched(rule: RedactionRule, enabled: frozenset[str], costly: frozenset[str]) -> bool:
    return rule.id in enabled and (not rule.costly or rule.id in costly)


def _replacement(match: re.Match[str]) -> str:
    return _REPLACEMENTS[match.lastgroup] if match.lastgroup else match[0]


def is_sensitive_name(name: str) -> bool:
    """Return True if the default redaction replaces the value under a key of this name."""
    return _is_sensitive(name, DEFAULT_REDACTION.suffixes)


def _is_sensitive(name: Any, suffixes: tuple[str, ...]) -> bool:
    if not isinstance(name, str):
        return False
    return _NOT_IN_NAMES.sub("", name[-_NAME_TAIL_CHARS:].lower()).endswith(suffixes)
