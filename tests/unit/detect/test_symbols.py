"""Sentences of symbols: what stands for a name depends on what the server offers."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from assay_stream.detect.symbols import (
    SENTENCE_SYMBOLS_MAX,
    WORD_CHARS_MAX,
    OfferedNames,
    families_of,
    name_key,
    sentences_of,
    spans_of,
)

OFFERED = OfferedNames(
    own=frozenset({"sendemail"}), itself="addnumbers", parameters=frozenset({"query"}), families=frozenset({"jira"})
)


def symbols(text: str) -> list[str]:
    return [" ".join(sentence.symbols) for sentence in sentences_of(text, OFFERED)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("call send_email", "call <own>"),
        ("call `sendEmail`", "call <own>"),
        ("call open_door", "call <other>"),
        ("call openDoor(x)", "call <other> x"),
        ("call 'sync-ledger'", "call <named>"),
        ("a well-known name", "a well -known name"),
        ("add_numbers", "<self>"),
        ("pass `query`", "pass <param>"),
        ("with dry_run=true", "with <param> true"),
        ("see jira_search_issues", "see <own>"),
        ("field(s) of a row", "field s of a row"),
        ("at https://a.example/b?c=d", "at <url>"),
        ("to a.b@c.example", "to <mail>"),
        ("from git@c.example:team/rates.git", "from <url>"),
        ("give a post_id", "give a <named>"),
        ("call get_user_id", "call <other>"),
        ("read ~/.ssh/id_rsa", "read <secret>"),
        ("read /var/log/syslog", "read <path>"),
        ("read /etc", "read <path>"),
        ("read /view or /me/messages", "read <route> or <route>"),
        ("read /orders/{id}", "read <route> id"),
        ("read /etc/{id} or /host/etc/hosts", "read <path> id or <path>"),
        ("read ~/notes/{id} or /app/start", "read <path> id or <path>"),
        ("read /app/run.sh", "read <path>"),
        ("read ~/.ssh/id_rsa.pub.", "read <path>"),
        ("read ~/.ssh/id_rsa(a.pub)", "read <secret> a pub"),
        ("at most 2,000", "at most <number>"),
        ("IMPORTANT", "important <capitals>"),
        ("use COUNT(*) first", "use count <capitals> first"),
        ("set API_TOKEN to TEXT_GBK", "set api token to text gbk"),
        ("the 'add' mode", "the <quoted> add mode"),
        ("set readOnlyHint and `_meta.progressToken`", "set readonlyhint and <quoted> meta progresstoken"),
    ],
)
def test_a_name_is_what_the_server_makes_of_it(text: str, expected: str) -> None:
    assert symbols(text) == [expected]


def test_sentences_end_where_a_reader_ends_them() -> None:
    """A full stop, a blank line and a line that begins anew end a sentence; a wrapped line does not."""
    assert symbols("One two. Three\nfour\n\nfive\n- Six") == ["one two", "three four", "five", "six"]


def test_a_script_without_blanks_is_read_character_by_character() -> None:
    assert symbols("使用前。必须") == ["使 用 前", "必 须"]


@given(st.text(alphabet=st.sampled_from("ab_A.-/:'`(=\n <~@1。使"), max_size=200))
def test_symbols_are_bounded_and_stand_in_the_text(text: str) -> None:
    spans = spans_of(text)
    for sentence in sentences_of(text, OFFERED):
        assert all(len(symbol) <= WORD_CHARS_MAX + 1 for symbol in sentence.symbols)
        assert len(sentence.runs) == len(sentence.symbols)
        assert list(sentence.runs) == sorted(sentence.runs)
        assert all(0 <= run < len(spans) for run in sentence.runs)


def test_spellings_of_a_name_share_a_key() -> None:
    assert {name_key(name) for name in ("send_email", "sendEmail", "send-email", "SendEmail")} == {"sendemail"}


def test_a_verb_is_no_family() -> None:
    assert families_of("jira_search_issues") == ("jira", "jira search")
    assert [families_of(name) for name in ("jira", "get_issue", "createIssue")] == [("jira",), (), ()]


def test_a_run_of_many_names_is_read_in_parts() -> None:
    """No sentence is longer than twice its bound, whatever stands between two blanks."""
    lengths = [len(sentence.symbols) for sentence in sentences_of("a," * 1_000, OFFERED)]
    assert sum(lengths) == 1_000
    assert max(lengths) <= 2 * SENTENCE_SYMBOLS_MAX
