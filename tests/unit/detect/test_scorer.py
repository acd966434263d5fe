"""What a sentence weighs."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from shutil import copytree

import pytest
from hypothesis import given, strategies as st

from assay_stream.detect import RULES, RULES_DIGEST, DetectionRule
from assay_stream.detect.catalog import CATALOG, digest_of, load
from assay_stream.detect.scorer import _CONCEPTS_OF, Weights, features_of
from assay_stream.errors import ConfigurationError

SYMBOLS = st.lists(st.sampled_from([*sorted(_CONCEPTS_OF), "x", "the", "-word"]), max_size=30)


@given(SYMBOLS)
def test_a_score_does_not_depend_on_which_string_a_word_is(symbols: list[str]) -> None:
    weights = Weights({feature: len(feature) for feature in features_of(symbols)})
    copies = ["".join(list(symbol)) for symbol in symbols]
    assert weights.score(copies) == weights.score(symbols)
    assert weights.heaviest(copies) == weights.heaviest(symbols)


DATA = Path(str(files("assay_stream.detect"))) / "data"


@pytest.fixture
def altered(tmp_path: Path) -> Callable[[str, str, str], Path]:
    def alter(file: str, old: str, new: str) -> Path:
        folder = shutil.copytree(DATA, tmp_path / "data")
        text = (folder / file).read_text(encoding="utf-8")
        assert old in text
        (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")
        return folder

    return alter


def test_every_file_of_phrases_is_read() -> None:
    listed = load(DATA)
    assert {file.stem for file in (DATA / "phrases").glob("*.toml")} == set(
        tomllib.loads((DATA / "lists.toml").read_text(encoding="utf-8"))["phrase_files"]
    )
    assert not any("$" in phrase for _, phrase in listed.phrases)
    assert len(listed.phrases) == len(CATALOG.phrases) > 400


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("rules.toml", "level = 5", "level = 6", r"rules.toml: Expected `int` <= 5 - at `\$.rule\[0\].level`"),
        ("rules.toml", 'reference = "OWASP', 'referense = "OWASP', r"rules.toml: Object .*`reference|referense"),
        ("rules.toml", "'/dev/tcp/'", "'(/dev/tcp/'", r"rules.toml: missing \)"),
        ("lists.toml", '"key_store_named", ', '"key_stores", ', "lists.toml: 'key_stores' is defined nowhere"),
        ("lists.toml", '"he"', '"xx"', "xx.toml"),
        ("phrases/de.toml", "$send", "$sends", "de.toml: 'sends' is defined nowhere"),
        ("phrases/de.toml", "secrecy_asked", "secrets_asked", "de.toml: 'secrets_asked' is defined nowhere"),
    ],
)
def test_wrong_data_is_refused(
    altered: Callable[[str, str, str], Path], file: str, old: str, new: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(altered(file, old, new))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_each_rule_says_all_that_its_search_needs(rule: DetectionRule) -> None:
    is_raw = rule.searched_in == "raw"
    assert [each.id for each in RULES].count(rule.id) == 1
    assert is_raw == (rule.needs is not None)
    assert (bool(rule.pattern) and not is_raw) == bool(rule.needles)
    assert all(text == text.lower() for text in (*rule.needles, *rule.hints))
    assert (rule.raised_to is None) == (rule.raised_when is None)


def test_names_in_braces_stand_for_something() -> None:
    used = {name for _, phrase in CATALOG.phrases + CATALOG.note_phrases for name in re.findall(r"\{(\w+)\}", phrase)}
    assert used <= CATALOG.places.keys() | {"tool"}


INSTALLED = Path(digest_of.__code__.co_filename).parent / "data"


def test_a_copy_of_the_data_has_its_digest(tmp_path: Path) -> None:
    assert digest_of(Path(copytree(INSTALLED, tmp_path / "data"))) == RULES_DIGEST


@pytest.mark.parametrize("name", ["rules.toml", "relations.toml", "weights.tsv", "phrases/en.toml"])
def test_any_change_of_any_file_is_another_digest(tmp_path: Path, name: str) -> None:
    data = Path(copytree(INSTALLED, tmp_path / "data"))
    (data / name).write_bytes((data / name).read_bytes() + b"\n")
    assert digest_of(data) != RULES_DIGEST
