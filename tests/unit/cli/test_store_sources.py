"""What the commands about one alert read from files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from assay_stream.alerts.story import AlertStory
from assay_stream.cli.store_sources import HistoryOptions, OpenedStore, StoryOptions, published_definitions
from assay_stream.model.record import Origin, Record, Role
from tests.support.stories import NEW, OLD, changed_alert, changed_finding, digest_of, evidence


def story(tmp_path: Path, **files: bytes) -> tuple[AlertStory, list[str]]:
    paths: dict[str, Any] = {}
    for name, content in ({"file": orjson.dumps(changed_alert())} | files).items():
        paths[name] = tmp_path / name
        paths[name].write_bytes(content)
    told, refused = StoryOptions(**paths).story(changed_finding().uid())
    return told, list(refused)


def test_a_definition_is_known_by_its_own_digest(tmp_path: Path) -> None:
    """Not by what a line says that its digest is."""
    lines = [{"full_digest": digest_of(NEW), "definition": OLD}, {"definition": NEW}]
    told, refused = story(tmp_path, definitions=b"\n".join(map(orjson.dumps, lines)))
    assert refused == []
    assert (told.has_before, told.has_after) == (True, True)
    assert told.diff is not None
    assert [place.path for place in told.diff.places] == ["$.description", "$.annotations.readOnlyHint"]


def test_lines_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    told, refused = story(tmp_path, definitions=b"[]\n{}\nx", evidence=b"{}\n")
    assert told.diff is None
    assert [text.removeprefix(str(tmp_path)).split(": ")[:2] for text in refused] == [
        ["/definitions, line 1", "not_a_definition"],
        ["/definitions, line 2", "not_a_definition"],
        ["/definitions, line 3", "not_json"],
        ["/evidence, line 1", "not_evidence"],
    ]


def test_a_foreign_key_in_the_definition_topic_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def read(_: OpenedStore, *_roles: Role, wanted: Callable[[Record], bool]) -> None:
        asked.append(wanted(Record(Role.DEFINITIONS, Origin("t", 0, 0), b"\xff", b"{}")))

    monkeypatch.setattr(OpenedStore, "read", read)
    assert published_definitions(HistoryOptions(), {digest_of(NEW)}) == {}
    assert asked == [False]


def test_calls_count_from_the_first_finding_on(tmp_path: Path) -> None:
    """Where evidence is given; without it nothing is said of calls."""
    before, after = (evidence(second, tool="read_note", full_digest=digest_of(NEW)) for second in (0, 1))
    told, _ = story(tmp_path, evidence=before + b"\n" + after)
    assert told.calls is not None
    assert told.calls.used == 1
    assert story(tmp_path)[0].calls is None


def test_definitions_beside_the_alerts_are_read(tmp_path: Path) -> None:
    """As a replay writes them; a file that is named takes precedence."""
    beside = b"\n".join(orjson.dumps({"definition": definition}) for definition in (OLD, NEW))
    (tmp_path / "definitions.ndjson").write_bytes(beside)
    told, refused = story(tmp_path)
    assert (told.has_before, told.has_after, refused) == (True, True, [])
    told, _ = story(tmp_path, definitions=orjson.dumps({"definition": NEW}))
    assert (told.has_before, told.has_after) == (False, True)


def test_evidence_beside_the_alerts_is_read(tmp_path: Path) -> None:
    (tmp_path / "evidence.ndjson").write_bytes(evidence(1, tool="read_note", full_digest=digest_of(NEW)))
    told, _ = story(tmp_path)
    assert told.calls is not None
    assert told.calls.used == 1
