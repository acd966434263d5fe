"""Stories that did not go as they should: the demo has to say so."""

from importlib.resources import files

from assay_stream.alerts.rules import AlertRules
from assay_stream.cli.demo import TOLD, DemoStory
from assay_stream.cli.output import Painter
from assay_stream.files.archive import read_lines
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Role
from assay_stream.replay.run import replay


def story_of(*chapters: int, without: Role | None = None) -> DemoStory:
    folder = files("assay_stream.cli") / "data" / "demo"
    lines = [line for number in chapters for line in (folder / f"{number}.ndjson").read_bytes().splitlines()]
    story = DemoStory(Painter("never", columns=80), "notes")
    for output in replay(
        read_lines(lines, name="o"), producer=Producer(version="0"), alert_rules=AlertRules(version="0")
    ):
        if output.role in TOLD and output.role is not without:
            story.take(output.role, output.value or b"")
    return story


def test_the_whole_story_is_whole() -> None:
    assert story_of(1, 2, 3, 4).end()


def test_a_story_without_its_rug_pull_is_not_whole() -> None:
    """No alert that pages: the demo failed."""
    story = story_of(1, 2, 3)
    assert not story.end()
    assert story.open_on_server == 0


def test_a_story_without_alerts_is_not_whole() -> None:
    """As where the alert stage does not run."""
    assert not story_of(1, 2, 3, 4, without=Role.ALERTS).end()


def test_a_call_without_a_definition_is_not_told_as_bound() -> None:
    """A chapter whose lists are missing: its calls have evidence, and it says why there is no digest."""
    story = story_of(4)
    story.evidence[0].pop("tool_definition_digest")
    story.evidence[0]["unbound_reason"] = "no_snapshot"
    assert not story.end()


def test_the_upgrade_is_open_until_it_is_approved() -> None:
    """What `make demo` waits for between chapters."""
    assert story_of(1, 2).open_on_server == 1
    assert story_of(1, 2, 3).open_on_server == 0
