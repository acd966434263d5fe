"""Canonical JSON (RFC 8785, JCS) as Assay computes it, and digests over it: plain, after redaction, and keyed.

A digest over a short secret can be guessed back, so what looks like one is replaced first, by a text that says
what stood there: ``[REDACTED:<category>:<pattern id>]``. Two rules:

1. The whole value under a sensitive key name (``password``, ``clientSecret``) is replaced.
2. In every other text, each match of an enabled rule is replaced, in one pass from the left.

Which rules are enabled, and which further key names are sensitive, is a ``Redaction``. It decides digests:
evidence whose hashes were made under another than the default one names it.

Keys are never changed, nor are numbers outside rule 1. Redaction is a guess: it lowers the harm of a careless
caller and proves nothing about what is left.

A digest over few possible values is found by trying them all. A keyed digest is ``hmac-sha256:<key id>:<hex>``:
HMAC-SHA-256 (RFC 2104) over the text of the plain digest, so that whoever has the key finds the calls behind a plain
digest, and a plain digest that somebody else made can be keyed later.
"""

from __future__ import annotations

import hmac
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import orjson
import rfc8785

from assay_stream.errors import ConfigurationError, InputError

_EXACT_INTEGER_MAX = 2**53 - 1
_DEPTH_MAX = 254
"""Nested containers that can be written: orjson's bound, kept on the other path too. Input nests 127 at most."""
_HEX = re.compile(r"[0-9a-f]{64}")
_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A SHA-256 digest; no other algorithm can be represented.

    Args:
        hex: 64 lowercase hexadecimal digits.
    """

    hex: str

    def __post_init__(self) -> None:
        if not _HEX.fullmatch(self.hex):
            raise InputError("bad_digest", "a SHA-256 digest is 64 lowercase hexadecimal digits")

    def __str__(self) -> str:
        return f"sha256:{self.hex}"

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Parse a digest.

        Args:
            text: ``sha256:`` and 64 lowercase hexadecimal digits.

        Raises:
            InputError: ``bad_digest``.
        """
        algorithm, _, digits = text.partition(":")
        if algorithm != "sha256":
            raise InputError("bad_digest", "a digest is written sha256:<64 lowercase hexadecimal digits>")
        return cls(digits)


def sha256_of(raw: bytes) -> Digest:
    return Digest(sha256(raw).hexdigest())


def jcs_digest(value: Any) -> Digest:
    """Return the SHA-256 digest of a value's canonical form.

    Raises:
        InputError: as ``canonicalize``.
    """
    return sha256_of(canonicalize(value))


class Canonicalized(dict[str, Any]):
    """An object that keeps its canonical form, for one that stands in several values which are hashed.

    Args:
        members: a JSON object; it must not change from now on.

    Attributes:
        form: its canonical form (RFC 8785).
        is_plain: whether every serialiser that sorts keys writes it alike, but for the escapes in its texts.

    Raises:
        InputError: as ``canonicalize``.
    """

    __slots__ = ("form", "is_plain")

    def __init__(self, members: dict[str, Any]) -> None:
        form = plain_form(members)
        self.is_plain = form is not None
        self.form = canonicalize(members) if form is None else form
        super().__init__(members)


def canonicalize(value: Any) -> bytes:
    """Return the canonical form of a JSON value (RFC 8785).

    Integers beyond 2^53 become doubles first, as Assay and every JavaScript reader have them.

    Raises:
        InputError: ``not_canonicalizable``, ``lone_surrogate`` or ``too_deep``.
    """
    if type(value) is Canonicalized:
        return value.form
    form = plain_form(value)
    if form is not None:
        return form
    try:
        return rfc8785.dumps(_as_doubles(value, 0))
    except UnicodeEncodeError:
        raise InputError("lone_surrogate", "an unpaired surrogate is not valid Unicode") from None
    except RecursionError:
        raise InputError("too_deep", "the value is nested too deeply") from None
    except rfc8785.CanonicalizationError as error:
        if isinstance(error.__cause__, UnicodeEncodeError):
            raise InputError("lone_surrogate", "an unpaired surrogate is not valid Unicode") from None
        raise InputError("not_canonicalizable", "the value is not JSON, or a number is not finite") from None


def compact_copy(form: bytes) -> bytes:
    """Return bytes that orjson wrote in a block of their own size, for those that stay in memory.

    orjson leaves one to four kilobytes behind whatever it writes.
    """
    return bytes(memoryview(form))


def plain_form(value: Any) -> bytes | None:
    """Return the canonical form of a value that every serialiser which sorts keys writes alike.

    They differ in the escapes within texts. Of a value with other keys than ASCII, with fractions, or with
    integers that no double holds there is no such form.

    Raises:
        InputError: as ``canonicalize``.
    """
    if type(value) is Canonicalized:
        return value.form if value.is_plain else None
    try:
        return orjson.dumps(value, default=_form_of, option=_SORTED) if _is_plain(value) else None
    except orjson.JSONEncodeError as error:
        if "surrogates" in str(error):
            raise InputError("lone_surrogate", "an unpaired surrogate is not valid Unicode") from None
        raise InputError("too_deep", "the value is nested too deeply") from None
    except RecursionError:
        raise InputError("too_deep", "the value is nested too deeply") from None


def _form_of(value: Canonicalized) -> orjson.Fragment:
    return orjson.Fragment(value.form)


def _is_plain(value: Any) -> bool:
    """Return True if sorted orjson output is the canonical form.

    It is for ASCII keys, whose byte order is their UTF-16 order, and for integers that a double holds exactly.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not key.isascii() or not (type(item) is str or _is_plain(item)):
                return False
        return True
    if kind is list:
        return all(map(_is_plain, value))
    if kind is Canonicalized:
        return bool(value.is_plain)
    return kind is int and -_EXACT_INTEGER_MAX <= value <= _EXACT_INTEGER_MAX


def _as_doubles(value: Any, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise InputError("too_deep", "the value is nested too deeply")
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if -_EXACT_INTEGER_MAX <= value <= _EXACT_INTEGER_MAX:
            return int(value)
        try:
            return float(value)
        except OverflowError:
            raise InputError("not_canonicalizable", "an integer does not fit a double") from None
    if isinstance(value, list | tuple):
        return [_as_doubles(item, depth + 1) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise InputError("not_canonicalizable", "object keys must be text")
        return {key: _as_doubles(item, depth + 1) for key, item in value.items()}
    return value


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
    searched = (rule for rule in RULES if rule.id in enabled and (not rule.costly or rule.id in costly))
    rules = (f"(?P<{rule.id}>{rule.regex})" for rule in searched)
    return re.compile("|".join((*replaced, *rules)))


def _replacement(match: re.Match[str]) -> str:
    return _REPLACEMENTS[match.lastgroup] if match.lastgroup else match[0]


def is_sensitive_name(name: str) -> bool:
    """Return True if the default redaction replaces the value under a key of this name."""
    return _is_sensitive(name, DEFAULT_REDACTION.suffixes)


def _is_sensitive(name: Any, suffixes: tuple[str, ...]) -> bool:
    if not isinstance(name, str):
        return False
    return _NOT_IN_NAMES.sub("", name[-_NAME_TAIL_CHARS:].lower()).endswith(suffixes)


PREFIX = "hmac-sha256:"
_KEY = re.compile(r"[0-9a-f]{64}")
_PLAIN = re.compile(r"sha256:[0-9a-f]{64}")
_KEYED = re.compile(PREFIX + r"[0-9a-f]{16}:[0-9a-f]{64}")
_ID_DIGITS = 16


class DigestKey:
    """A key of 32 random bytes.

    Args:
        text: 64 lowercase hexadecimal digits. A password would be guessed as the values are.
        redaction: what is left out of values before they are hashed.

    Attributes:
        id: tells keys apart, so that they can change: the first 16 digits of an HMAC under the key.

    Raises:
        ConfigurationError: ``bad_digest_key``.
    """

    def __init__(self, text: str, redaction: Redaction = DEFAULT_REDACTION) -> None:
        if not _KEY.fullmatch(text):
            raise ConfigurationError(
                "bad_digest_key", "a digest key is 32 random bytes as 64 hexadecimal digits: openssl rand -hex 32"
            )
        self.redaction = redaction
        self._secret = bytes.fromhex(text)
        self.id = self._hex("key id")[:_ID_DIGITS]

    def keyed(self, digest: str) -> str | None:
        """Return the keyed form of a plain digest; one that is keyed already stays, and ``None`` stands for others."""
        if _KEYED.fullmatch(digest):
            return digest
        return f"{PREFIX}{self.id}:{self._hex(digest)}" if _PLAIN.fullmatch(digest) else None

    def _hex(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), sha256).hexdigest()
