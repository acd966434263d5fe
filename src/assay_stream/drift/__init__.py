"""What changed between two definitions, by meaning: codes, paths, values before and after, and directions.

Every function here that takes ``work`` or ``values`` spends units of work, and raises ``WorkExhaustedError`` where they
run out.
"""

from __future__ import annotations

from assay_stream.drift.change import CODES as CODES, Change as Change
from assay_stream.drift.definition import compare_definitions as compare_definitions
from assay_stream.drift.lists import ItemDrift as ItemDrift, compare_lists as compare_lists
