"""Indicators without a budget, for tests of what is found."""

from collections.abc import Collection, Mapping
from typing import Any

from assay_stream import detect
from assay_stream.work import UNLIMITED, Work


def detect_indicators(
    before: Mapping[str, Any] | None, after: Mapping[str, Any], *, tool_names: Collection[str] = ()
) -> list[detect.Indicator]:
    """Return what ``detect.detect_indicators`` returns, with the names indexed and as much work as it takes."""
    work = Work(UNLIMITED)
    return detect.detect_indicators(before, after, tool_names=detect.ToolNames(tool_names, work), work=work)
