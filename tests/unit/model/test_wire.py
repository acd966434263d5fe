"""Declared records: what is written, what is left out, what is read back, and the schema that says so."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated

import pytest
from jsonschema import Draft202012Validator

from assay_stream.model.facts import definition_record
from assay_stream.model.fields import Natural, Subject
from assay_stream.model.record import Origin, Role
from assay_stream.model.wire import ALWAYS, pairs, read_record, record_model, rows, write_record
from tests.support.events import TOOL, record_of
from tests.support.lists import PROMPT, TEMPLATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One of each.

    Args:
        subject: what a schema does not describe.
    """

    subject: Subject
    origin: Origin
    names: tuple[str, ...]
    stated: Annotated[str | None, ALWAYS] = None
    absent: str | None = None
    flag: bool = False
    by_name: Annotated[dict[str, int] | None, pairs(Natural)] = None
    found: Annotated[tuple[tuple[str, int], ...], rows(tuple[str, Natural])] = ()


PLAIN = Sample(subject=Subject.TOOL, origin=Origin("t", 0, 1), names=())
FULL = Sample(
    subject=Subject.PROMPT,
    origin=Origin("t", 0, 1),
    names=("a", "b"),
    stated="x",
    absent="y",
    flag=True,
    by_name={"b": 1, "a": 2},
    found=(("c", 3),),
)


def test_what_holds_its_default_is_left_out() -> None:
    assert write_record(PLAIN) == {
        "subject": "tool",
        "origin": {"topic": "t", "partition": 0, "offset": 1},
        "names": [],
        "stated": None,
    }


@pytest.mark.parametrize("record", [PLAIN, FULL])
def test_a_record_comes_back_as_it_went(record: Sample) -> None:
    content = write_record(record)
    errors = Draft202012Validator(record_model(Sample).model_json_schema()).iter_errors(
        {name: sorted(map(list, value)) if name == "by_name" else value for name, value in content.items()}
    )
    assert not list(errors)
    assert read_record(Sample, content) == record


@pytest.mark.parametrize(
    "change",
    [{"more": 1}, {"subject": "resource"}, {"origin": {"topic": "t"}}, {"found": [["c"]]}, {"flag": 1}],
    ids=str,
)
def test_what_is_no_such_record_is_refused(change: dict[str, object]) -> None:
    """A member that this version does not know may change what the others mean."""
    with pytest.raises((TypeError, ValueError, KeyError)):
        read_record(Sample, write_record(FULL) | change)


def test_a_member_that_is_always_written_must_be_there() -> None:
    content = write_record(FULL)
    del content["stated"]
    with pytest.raises(ValueError, match="members"):
        read_record(Sample, content)


def test_the_schema_describes_the_record_and_not_its_arguments() -> None:
    """What is documented for callers stays with them."""
    assert record_model(Sample).model_json_schema()["description"].strip() == "One of each."


FULL_DIGEST = "sha256:" + "a" * 64


def test_a_record_holds_the_definition_and_its_projection() -> None:
    output = definition_record(record_of(Role.SNAPSHOTS, b""), FULL_DIGEST, TOOL | {"title": "Read"})
    value = json.loads(output.value or b"")
    assert (output.key, value["full_digest"]) == (FULL_DIGEST.encode(), FULL_DIGEST)
    assert value["definition"] == TOOL | {"title": "Read"}
    assert "title" not in value["projection"]


def test_what_gives_no_projection_is_shown_all_the_same() -> None:
    output = definition_record(record_of(Role.SNAPSHOTS, b""), FULL_DIGEST, {"description": "nameless"})
    assert json.loads(output.value or b"") == {"full_digest": FULL_DIGEST, "definition": {"description": "nameless"}}
    assert output.label == "definition:not_digestible"


def test_prompts_and_templates_are_shown_as_they_came() -> None:
    for item in (PROMPT, TEMPLATE):
        output = definition_record(record_of(Role.SNAPSHOTS, b""), FULL_DIGEST, item)
        assert json.loads(output.value or b"")["definition"] == item


def test_instructions_are_no_tool_that_failed_to_be_digested() -> None:
    item = {"instructions": "Pages are Markdown."}
    output = definition_record(record_of(Role.SNAPSHOTS, b""), FULL_DIGEST, item)
    assert json.loads(output.value or b"") == {"full_digest": FULL_DIGEST, "definition": item}
    assert output.label == "definition"


FIRST_READS = """
import sys, threading
from dataclasses import field, make_dataclass
from assay_stream.model.wire import read_record

sys.setswitchinterval(1e-7)
for _ in range(100):
    fields = [(f"field_{n}", int | None, field(default=None)) for n in range(6)]
    parts = [make_dataclass("Part", fields) for _ in range(6)]
    whole = make_dataclass("Whole", [(f"part_{n}", parts[n] | None, field(default=None)) for n in range(6)])
    threads = [threading.Thread(target=read_record, args=(whole, {"part_5": None})) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_may_be_the_first_to_read_a_class() -> None:
    """Each partition is read in a thread of its own, and msgspec crashes where two of them describe a class."""
    subprocess.run([sys.executable, "-c", FIRST_READS], check=True)
