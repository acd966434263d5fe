"""What a page is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay_stream.limits import CONSOLE_LIMITS
from assay_stream.readmodel.rows import Paging

FEW = Paging(limit=CONSOLE_LIMITS.few_rows)
"""Rows of a table that is not what its page is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A page that is to be rendered.

    Args:
        template: its name.
        data: what the template shows.
        status: of HTTP.
    """

    template: str
    data: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


def absent(what: str, advice: str) -> Answer:
    """Return the page for something that is not in the store.

    Args:
        what: what is not there.
        advice: what to do about it.
    """
    return Answer(template="problem.html", data={"what": what, "advice": advice, "code": None}, status=404)
