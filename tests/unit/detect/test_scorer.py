"""What a sentence weighs."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from shutil import copytree

import pytest
from hypothesis import given, strategies as st

from assay_stream.detect import RULES_DIGEST
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
        ("rules.toml", 'id = "secrecy_asked"', 'id = "instructions_overridden"', "rules.toml: two rules share an id"),
        ("rules.toml", "'/dev/tcp/'", "'(/dev/tcp/'", "rules.toml: rule shell_command: bad pattern: missing \\)"),
        ("rules.toml", '"/dev/tcp/"', '"/DEV/tcp/"', "rule shell_command: needles and hints are written in lowercase"),
        ("rules.toml", 'needs = "unseen"', "", "rule invisible_message: a pattern over raw text has needs"),
        ("rules.toml", "raised_to = 4", "", "rule callback_parameter: raised_to and raised_when go together"),
        ("lists.toml", '"key_store_named", ', '"key_stores", ', "lists.toml: place secret_file has unknown rules"),
        ("lists.toml", '"he"', '"xx"', "xx.toml"),
        ("phrases/de.toml", "$send", "$sends", "de.toml: unknown classes of words: sends"),
        ("phrases/de.toml", "{address}", "{adress}", "de.toml: unknown names in braces: adress"),
        ("phrases/de.toml", "secrecy_asked", "secrets_asked", "de.toml: phrases of unknown rules: secrets_asked"),
    ],
)
def test_wrong_data_is_refused(
    altered: Callable[[str, str, str], Path], file: str, old: str, new: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(altered(file, old, new))


INSTALLED = Path(digest_of.__code__.co_filename).parent / "data"


def test_a_copy_of_the_data_has_its_digest(tmp_path: Path) -> None:
    assert digest_of(Path(copytree(INSTALLED, tmp_path / "data"))) == RULES_DIGEST


@pytest.mark.parametrize("name", ["rules.toml", "relations.toml", "weights.tsv", "phrases/en.toml"])
def test_any_change_of_any_file_is_another_digest(tmp_path: Path, name: str) -> None:
    data = Path(copytree(INSTALLED, tmp_path / "data"))
    (data / name).write_bytes((data / name).read_bytes() + b"\n")
    assert digest_of(data) != RULES_DIGEST
