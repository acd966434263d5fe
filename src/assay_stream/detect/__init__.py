"""What new text tries to make a model do: indicators of an attack in a definition's new text.

``detect_indicators`` is the entry. Underneath: ``surfaces`` lists the texts of a definition, ``page`` reads each one
once and caches what follows from it alone, ``decoders`` undoes disguises, ``reader`` applies the rules to every
reading, and ``indicators`` keeps what is new. ``siblings`` compares a definition with the others of its list. The rules
are data (``data/README.md``), read and checked by ``catalog``.

Every function here that takes ``work`` spends units of it, and raises ``WorkExhaustedError`` where they run out.
"""

from assay_stream.detect.catalog import LEVELS, RULES, RULES_DIGEST, DetectionRule
from assay_stream.detect.indicators import CUT_SHORT, Indicator, detect_indicators, level_beside, rules_shown
from assay_stream.detect.siblings import Siblings, claims_of
from assay_stream.detect.tool_names import NO_TOOLS, ToolNames

__all__ = [
    "CUT_SHORT",
    "LEVELS",
    "NO_TOOLS",
    "RULES",
    "RULES_DIGEST",
    "DetectionRule",
    "Indicator",
    "Siblings",
    "ToolNames",
    "claims_of",
    "detect_indicators",
    "level_beside",
    "rules_shown",
]
