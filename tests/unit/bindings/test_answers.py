"""Answers about servers: kept until the server changes, within one bound."""

from __future__ import annotations

from assay_stream.bindings.server import AnswerBound, Answers


def test_the_bound_is_shared() -> None:
    """What is kept about one server counts against what may be kept about another; without room all are dropped."""
    bound = AnswerBound(answers_max=3)
    one, other = Answers(bound), Answers(bound)
    one.keep(("a",), 1)
    one.keep(("b",), 2)
    other.keep(("a",), 3)
    assert (dict(one), dict(other), bound.count) == ({("a",): 1, ("b",): 2}, {("a",): 3}, 3)
    other.keep(("b",), 4)
    assert (dict(one), dict(other), bound.count) == ({}, {("b",): 4}, 1)


def test_an_answer_that_is_replaced_counts_once() -> None:
    answers = Answers(bound := AnswerBound(answers_max=2))
    for value in range(5):
        answers.keep(("a",), value)
    assert (dict(answers), bound.count) == ({("a",): 4}, 1)


def test_a_change_of_the_server_makes_room() -> None:
    answers = Answers(bound := AnswerBound(answers_max=2))
    answers.keep(("a",), 1)
    answers.clear()
    answers.clear()
    assert bound.count == 0
