"""Names of tools in texts: one index for a list, found in one pass."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from assay_stream.detect.tool_names import OtherTools, ToolNames
from assay_stream.text.words import Words, as_read
from assay_stream.work import UNLIMITED, Work, WorkExhaustedError


def found_in(text: str, *names: str) -> list[str]:
    words = Words(as_read(text))
    index = ToolNames(names, Work(UNLIMITED))
    return [" ".join(words.forms[each.first : each.end]) for each in index.find(words.forms, Work(UNLIMITED))]


def test_name_is_found_as_words_and_as_one() -> None:
    assert found_in("Send email, send_email, sendEmail", "send_email") == ["send email", "send email", "sendemail"]


def test_names_within_names_are_found() -> None:
    assert found_in("get user name", "get_user", "get_user_name", "user_name") == [
        "get user",
        "get user name",
        "user name",
    ]


def test_long_name_counts_by_its_beginning() -> None:
    name = "_".join(f"w{index}" for index in range(40))
    (found,) = found_in(name.replace("_", " "), name)
    assert found == " ".join(f"w{index}" for index in range(16))


def test_owners_tell_one_name_from_others_that_read_alike() -> None:
    index = ToolNames(["send_email", "sendemail"], Work(UNLIMITED))
    (found,) = index.find(["sendemail"], Work(UNLIMITED))
    assert (found.owners, found.owners_of_one_word) == ([("send", "email")], [("sendemail",)])


def test_list_of_n_tools_costs_n() -> None:
    """Twice the names and twice the texts cost twice the units: the index is made once, and asked by each word."""
    spent = []
    for tools in (1_000, 2_000):
        work = Work(UNLIMITED)
        names = [f"get_thing_{index}" for index in range(tools)]
        index = ToolNames(names, work)
        for name in names:
            list(index.find(["see", *name.split("_"), "get", "thing"], work))
        spent.append(work.spent)
    assert spent[1] < 2.1 * spent[0]


def test_index_is_paid_for_before_it_is_made() -> None:
    with pytest.raises(WorkExhaustedError):
        ToolNames(["x" * 100] * 100, Work(1_000))


def families(own: str, *others: str) -> set[str]:
    """Return the beginnings of names that are the server's, without the ends of names."""
    known = OtherTools(ToolNames([own, *others], Work(UNLIMITED)), own).families
    return {each for each in known if each[0].isalpha()}


def test_a_prefix_of_most_tools_is_the_servers() -> None:
    assert "jira" in families("jira_search", "jira_comment", "wiki_search")
    assert "jira" not in families("wiki_search", "jira_search", "jira_comment")


def test_decoys_make_no_prefix() -> None:
    assert "bank" not in families("add", "bank_status", "bank_help")
    assert "bank" not in families("bank_add", "subtract", "divide", "multiply", "bank_help")


def test_two_words_that_a_tool_has_are_the_servers() -> None:
    assert "audit service" in families("list_slis", "audit_services", "audit_service_operations")
    assert families("list_slis", "audit_service_operations") == set()


def test_names_within_names_are_each_paid_for() -> None:
    names = ToolNames(["_".join("a" * length) for length in range(1, 16)], Work(UNLIMITED))
    words = Words("a " * 200)
    work = Work(UNLIMITED)
    found = OtherTools(names, "other").spans(words, work)
    assert len(found) > 2_000
    assert found == sorted(set(found))
    assert work.spent > 4 * len(found)


def test_partitions_that_meet_a_list_at_once_find_all_of_its_names() -> None:
    """Servers with the same tools share one index, and each partition has a thread of its own."""
    listed = [f"tool_{number}" for number in range(300)]
    forms = Words(" ".join(listed)).forms
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            names, begin = ToolNames(listed, Work(UNLIMITED)), Barrier(4)

            def find(names: ToolNames = names, begin: Barrier = begin) -> int:
                begin.wait()
                return len(list(names.find(forms, Work(UNLIMITED))))

            with ThreadPoolExecutor(4) as threads:
                found = [each.result() for each in [threads.submit(find) for _ in range(4)]]
            assert found == [len(listed)] * 4
    finally:
        sys.setswitchinterval(interval_s)
