"""Signs without a budget, for tests of what is found."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from assay_stream.detect import indicators
from assay_stream.detect.tool_names import ToolNames
from assay_stream.work import UNLIMITED, Work


def signs_between(
    before: Mapping[str, Any] | None, after: Mapping[str, Any], *, tool_names: Collection[str] = ()
) -> list[indicators.Sign]:
    """Return what ``introduced.signs_between`` returns, with the names indexed and as much work as it takes."""
    work = Work(UNLIMITED)
    return indicators.signs_between(before, after, tool_names=ToolNames(tool_names, work), work=work)
