"""What changed between two definitions, by meaning: codes, paths, values before and after, and directions.

Every function here that takes ``work`` or ``values`` spends units of work, and raises ``WorkExhaustedError`` where they
run out.
"""

from __future__ import annotations

from assay_stream.drift.change import CODES, Change, CodeInfo
from assay_stream.drift.definition import compare_definitions
from assay_stream.drift.lists import ItemDrift, compare_lists
from assay_stream.model.fields import ChangeDirection, Subject

__all__ = [
    "CODES",
    "Change",
    "ChangeDirection",
    "CodeInfo",
    "ItemDrift",
    "Subject",
    "compare_definitions",
    "compare_lists",
]
