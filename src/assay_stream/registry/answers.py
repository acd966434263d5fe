"""Answers about servers that are kept until their server changes, within one bound for all servers."""

from __future__ import annotations

from typing import Any

from assay_stream.limits.core import DEFAULT_LIMITS


class AnswerBound:
    """The bound that the answers about many servers share; each answer is kept until its server changes.

    An answer follows from the state alone, so what is kept never changes what is found.

    Args:
        answers_max: how many are kept. When there is no room for another, all are dropped.
    """

    __slots__ = ("answers_max", "count", "of_servers")

    def __init__(self, answers_max: int = DEFAULT_LIMITS.answers_max) -> None:
        self.answers_max = answers_max
        self.count = 0
        self.of_servers: dict[int, Answers] = {}
        """Those that hold any, by identity."""


class Answers(dict[tuple[Any, ...], Any]):
    """The answers about one server, by question."""

    __slots__ = ("_bound",)

    def __init__(self, bound: AnswerBound) -> None:
        super().__init__()
        self._bound = bound

    def keep(self, question: tuple[Any, ...], answer: object) -> None:
        if question not in self:
            if self._bound.count >= self._bound.answers_max:
                for answers in list(self._bound.of_servers.values()):
                    answers.clear()
            self._bound.count += 1
            self._bound.of_servers[id(self)] = self
        self[question] = answer

    def clear(self) -> None:
        if self:
            self._bound.count -= len(self)
            del self._bound.of_servers[id(self)]
            super().clear()
