"""The texts of a definition, with where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_stream.detect.surfaces import Text, TextRole, Texts, name_words, required_of
from assay_stream.work import UNLIMITED, Work


def texts_of(definition: Mapping[str, Any]) -> list[Text]:
    return list(Texts(definition, Work(UNLIMITED)))


def test_parameters_are_told_from_other_names() -> None:
    schema = {"properties": {"properties": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
    named = {text.value: text for text in texts_of({"inputSchema": schema}) if text.role is TextRole.PARAMETER}
    assert named.keys() == {"properties", "a"}
    assert not named["a"].is_free


def test_keys_of_the_standards_say_nothing() -> None:
    definition = {"name": "n", "inputSchema": {"type": "object", "x-note": 1}}
    assert [text.value for text in texts_of(definition)] == ["x-note", "object", "n"]


def test_name_words() -> None:
    assert {name_words(name) for name in ("read_text_file", "read-text-file", "readTextFile", "Read Text File")} == {
        ("read", "text", "file")
    }


def test_required_of_what_is_no_schema() -> None:
    assert required_of({"inputSchema": {"required": ["a", 1]}}) == {"a"}
    assert required_of({"inputSchema": {"required": "a"}}) == required_of({"inputSchema": 1}) == frozenset()
