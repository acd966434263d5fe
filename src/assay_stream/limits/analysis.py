"""Bounds of the analysis of definitions: its work, and what it reads, reports and remembers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisLimits:
    """Bounds on what the analysis of a list may cost."""

    change_value_chars_max: int = 1_024
    """Characters of a value before or after one change, as text or JSON. Descriptions of real tools have up to
    3 KB; what was changed is read in the definition topic, a change only shows what it is about."""

    changes_max: int = 1_000
    """Changes reported of one definition; real upgrades have some thirty. More are reported as one."""

    work_units_max: int = 16_000_000
    """Units of work (``work``) that one record may cost beyond decoding and fingerprints: under two seconds
    of one core. A gateway that offers 2,000 new tools of 1 KB each stays within it."""

    definition_work_units_max: int = 2_000_000
    """Units of work that one definition may cost, of those of its record: a hostile tool must not use up what its
    neighbours in the list need."""

    path_chars_max: int = 1_024
    """Characters of the path of one change, or of one sign. Paths of real changes have under 200; names of a
    hostile schema would make each path as long as the schema."""

    allowance_units_per_s: int = 1_000_000
    """Units of work that the lists of one server may cost per second of log time: a tenth of a core, so that nine
    more servers of its partition can do the same. A change that was analysed before is free."""

    allowance_burst_units: int = 32_000_000
    """Units that a server may save up: two lists that each use up the budget of a record, in four seconds."""

    ration_floor_units: int = 20_000
    """Units for the analysis of a list that finds its server's allowance used up: two milliseconds."""

    rationed_changes_max: int = 5
    """Changed definitions that such a list reports one by one beside those whose new text has signs. Further ones,
    and what came and went, are counted: each finding is written, read, and may begin an alert."""

    analysed_changes_max: int = 64
    """Changes that are remembered as analysed per server: roll-outs that go on at once. One takes 32 digits."""

    analysed_pairs_max: int = 8_192
    """Definitions of these changes together: fewer than ``analysis_answers_max``, so that what is not charged
    again need not be worked out again either."""

    short_pages_max: int = 4_096
    """Texts of a few words that are kept with what was found out about them, in one process: those of some 50
    servers. One takes some 2 KB."""

    long_pages_max: int = 512
    """Longer texts that are kept so: those of the definitions at hand."""

    long_pages_chars_max: int = 65_536
    """Characters that these have together, as they stand and as they are seen. With all that is kept of it, a
    character takes some 50 bytes, and up to 200 where every other one is a word."""

    analysis_answers_max: int = 49_152
    """Answers kept about pairs of definitions, in one process: three for each of twice ``analysed_pairs_max``."""

    analysis_answers_bytes_max: int = 64 * 1024 * 1024
    """What these take together in memory; a usual answer takes less than 1 KB."""

    rename_pairs_max: int = 10_000
    """Pairs of removed and added tools with one schema whose descriptions are compared. Beyond that only equal
    descriptions make a rename."""

    rename_description_chars_max: int = 8_192
    """Characters of a description whose words are compared to find renamed tools; of a longer one all words must
    be the same. Descriptions of real tools have up to 3,000."""

    introduced_chars_max: int = 262_144
    """Characters of new text that are searched in one definition: with plain text, as much as its share of work
    suffices for. A whole real server has some 7,000; more than this is a sign by itself."""

    decoding_depth_max: int = 4
    """Disguises undone one inside another. Attacks on record have two; who uses more is reported for it."""

    decoded_chars_max: int = 16_384
    """Characters of decoded text that are read of one text, besides four for each of its own. What says more than
    that is reported as oversized."""

    unpacked_bytes_max: int = 16_384
    """Bytes taken out of one compressed blob, which may hold a thousand times as many as it takes. One that holds more
    is reported as oversized."""

    indicators_max: int = 256
    """Indicators reported of one definition, the worst ones; real attacks bring ten. More are one by themselves."""

    tool_name_chars_max: int = 256
    """Characters of a tool's name that are looked for in other tools' texts; MCP asks for 128 at most."""

    tool_name_words_max: int = 16
    """Words of a tool's name that are looked for in other tools' texts. Of a longer one the beginning counts."""

    drawn_name_chars_max: int = 1_024
    """Characters of a tool name, decomposed, that are compared as readers see them; MCP asks for 128 at most. One
    character can become eighteen: without a bound, a name of a megabyte would take seconds."""
    skeleton_chars_max: int = 256
    """Characters of the skeleton of a tool name, which is a key; a longer one is replaced by its digest."""

    name_claims_max: int = 256
    """Definitions remembered under look-alike names, over all servers: 90 KB of state. Further ones are compared
    once, counted as left out, and not remembered."""

    name_sketch_max: int = 16
    """Digests of names in the sketch of a server's catalogue, 8 characters each. Up to as many names are compared
    exactly; of more the share is estimated, within a quarter of all at worst in 19 of 20 cases."""
