"""The rules as data: ``data/*.toml``, read once and checked, and their digest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from assay_stream.canonical.digest import jcs_digest
from assay_stream.errors import ConfigurationError

DATA: Final = files(__package__) / "data"
_CLASS = re.compile(r"\$(\w+)")
_Kind = TypeVar("_Kind")


class DetectionRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule. ``data/rules.toml`` documents the notation of each field.

    Args:
        level: OCSF severity id that it raises to, 1 to 5. It lowers nothing.
        claim: what a match means, as a clause.
        reason: why an attacker does it.
        reference: public name of the attack, or the work that describes it.
        pattern: alternatives of one regular expression.
        searched_in: whether the pattern is searched in the text as its reader sees it, or exactly as it stands.
        needs: what a text must have for a ``raw`` pattern to be searched.
        needles: lowercase texts, one of which occurs in each match of a ``seen`` pattern.
        hints: further ones, looked for once a needle was found.
        unless_followed_by: a regular expression that must not match right after a phrase.
        unless_preceded_by: one that must not match right before it.
        names: parameter names, separated by blanks.
        names_are_whole: whether a longer name that ends in one of them does not count.
        raised_to: the level where ``raised_when`` holds.
        raised_when: the parameter is required by a tool that existed before, or has an address set.
        may_be_negated: whether "never ..." before or "not" inside a phrase turns it into its opposite.
        is_sufficient: whether a phrase of it needs no evidence of another kind to keep its level.
        needs_second: whether a relation of it needs that, as a phrase does.
        own_business: words of names: a tool or a switch with such a name does what the rule is about, and may say so.
        instructions_level: the maximum level in a server's instructions, where such text is expected.
    """

    id: Annotated[str, msgspec.Meta(pattern="^[a-z_]+$")]
    level: Annotated[int, msgspec.Meta(ge=1, le=5)]
    claim: str
    reason: str
    reference: str
    pattern: tuple[str, ...] = ()
    searched_in: Literal["seen", "raw"] = "seen"
    needs: Literal["unseen", "wide"] | None = None
    needles: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    unless_followed_by: str = ""
    unless_preceded_by: str = ""
    names: str = ""
    names_are_whole: bool = False
    raised_to: Annotated[int, msgspec.Meta(ge=1, le=5)] | None = None
    raised_when: Literal["required", "address"] | None = None
    instructions_level: Annotated[int, msgspec.Meta(ge=1, le=5)] | None = None
    own_business: str = ""
    may_be_negated: bool = False
    is_sufficient: bool = False
    needs_second: bool = False

    @property
    def regex(self) -> str:
        """The pattern as one regular expression, empty where the rule has none."""
        return "|".join(self.pattern)


class _Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rule: tuple[DetectionRule, ...]


class _Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    rules: tuple[str, ...] = ()
    pattern: tuple[str, ...] = ()
    is_case_sensitive: bool = False


class _Hosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    harmless: str
    harmless_suffixes: tuple[str, ...]
    documentation: str
    shared: str
    shared_suffixes: str
    second_level: str


class _Words(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    notes: str
    mcp_keys: str
    json_schema_keys: str
    common: str
    scripts_read_well: str
    tool_verbs: str
    joining: str
    value_verbs: str
    negators: str
    negation_ends: str
    claims: str
    modest_claims: str
    ranks: str
    verbs: tuple[str, ...]
    directing: str
    english: str
    english_common: str
    folders: str
    destroying: str
    removing: str
    sending: str
    writing: str


class _Lists(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    phrase_files: tuple[str, ...]
    place: tuple[_Place, ...]
    hosts: _Hosts
    words: _Words
    languages: dict[str, str]
    phrases: dict[str, tuple[str, ...]]


class _Phrases(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    phrases: dict[str, tuple[str, ...]]
    words: dict[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The contents of the data files.

    Args:
        rules: every rule, in the order of the file.
        phrases: pairs of a rule's id and a phrase, with classes of words expanded.
        english_phrases: how many of these are English; they come first.
        note_phrases: the same for descriptions of parameters that may hold anything.
        places: name in braces to the pattern of what it stands for.
        hosts: lists of hosts.
        words: lists of words.
        languages: the commonest words of each.
    """

    rules: tuple[DetectionRule, ...]
    phrases: tuple[tuple[str, str], ...]
    english_phrases: int
    note_phrases: tuple[tuple[str, str], ...]
    places: Mapping[str, re.Pattern[str]]
    hosts: _Hosts
    words: _Words
    languages: Mapping[str, str]


def load(data: Traversable = DATA) -> Catalog:
    """Read and check the data files.

    Raises:
        ConfigurationError: ``detection_data_altered``, with the file and entry at fault.
    """
    rules = _read(data / "rules.toml", _Rules).rule
    lists = _read(data / "lists.toml", _Lists)
    by_id = {rule.id: rule for rule in rules}
    with reading("rules.toml"):
        for rule in rules:
            for regex in (rule.regex, rule.unless_followed_by, rule.unless_preceded_by):
                re.compile(regex, re.IGNORECASE)
    places = {}
    with reading("lists.toml"):
        for place in lists.place:
            regex = "|".join((*(by_id[id_].regex for id_ in place.rules), *place.pattern))
            places[place.name] = re.compile(regex, 0 if place.is_case_sensitive else re.IGNORECASE)
        notes = tuple(_written_out(_Phrases(phrases=lists.phrases), by_id))
    phrases: list[tuple[str, str]] = []
    english = 0
    for name in lists.phrase_files:
        with reading(f"{name}.toml"):
            phrases += _written_out(_read(data / "phrases" / f"{name}.toml", _Phrases), by_id)
        if name.startswith("en"):
            english = len(phrases)
    return Catalog(
        rules=rules,
        phrases=tuple(phrases),
        english_phrases=english,
        note_phrases=notes,
        places=places,
        hosts=lists.hosts,
        words=lists.words,
        languages=lists.languages,
    )


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Turn errors within the block into one that names the data file.

    Raises:
        ConfigurationError: ``detection_data_altered`` if the file is missing, unreadable or malformed.
    """
    try:
        yield
    except OSError as error:
        raise _wrong(file, error.strerror or type(error).__name__) from error
    except KeyError as error:
        raise _wrong(file, f"{error} is defined nowhere") from error
    except (msgspec.MsgspecError, ValueError, re.error) as error:
        raise _wrong(file, str(error)) from error


def _read(file: Traversable, kind: type[_Kind]) -> _Kind:
    with reading(file.name):
        return msgspec.toml.decode(file.read_bytes(), type=kind)


def _written_out(book: _Phrases, rules: Mapping[str, DetectionRule]) -> Iterator[tuple[str, str]]:
    """Yield each phrase under its rule, with classes of words expanded."""
    classes = {name: "|".join(words.split()) for name, words in book.words.items()}
    for rule, phrases in book.phrases.items():
        for phrase in phrases:
            yield rules[rule].id, _CLASS.sub(lambda name: classes[name[1]], phrase)


def _wrong(file: str, what: str) -> ConfigurationError:
    return ConfigurationError("detection_data_altered", f"detect/data/{file}: {what}: reinstall assay-stream")


CATALOG: Final = load()
RULES: Final = CATALOG.rules
LEVELS: Final = {rule.id: rule.level for rule in RULES}


def _files(folder: Traversable, path: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = f"{path}{entry.name}"
        if entry.is_dir():
            yield from _files(entry, f"{name}/")
        elif name.endswith((".toml", ".tsv")):
            with reading(name):
                content = entry.read_bytes()
            yield name, content


def digest_of(data: Traversable) -> str:
    """Return the digest of a folder of detection data: of the canonical object of file names and their SHA-256."""
    return str(jcs_digest({name: sha256(content).hexdigest() for name, content in _files(data)}))


RULES_DIGEST: Final = digest_of(DATA)
"""Part of every finding of the registry, so that a replay by other rules is explained."""
