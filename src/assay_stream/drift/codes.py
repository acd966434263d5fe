"""The codes of changes as data: how each reads to a person, which way it goes, and its opposite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from assay_stream.drift.change import Direction

_W, _N, _O = Direction.WIDENS, Direction.NARROWS, Direction.NEUTRAL


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """What a code says.

    Args:
        title: one line for a person.
        direction: which way such a change goes.
        mirror: the code of the opposite change; its own where that is of the same kind.
    """

    title: str
    direction: Direction
    mirror: str


_TEXTS = {
    "description": "the description",
    "title": "the title",
    "parameter_description": "the description of a parameter or of a part of a schema",
    "parameter_title": "the title of a parameter or of a part of a schema",
}

_TEXT_PAIRS = (
    ("added", "removed", "{} was added", "{} was removed", _W),
    ("words_added", "words_removed", "words were added to {}", "words were removed from {}", _W),
)

_TEXT_SAME = (
    ("whitespace_changed", "only white space changed in {}"),
    ("typography_changed", "only case, quotes, dashes or punctuation changed in {}"),
    ("spelling_changed", "single letters of a few words changed in {}"),
    ("words_changed", "words were replaced in {}"),
)

_PAIRS = (
    # The schema as a whole.
    ("schema_declared", "schema_undeclared", "a schema was stated where there was none, or one that said nothing",
     "a schema that said something went away", _N),
    ("schema_definition_added", "schema_definition_removed", "a shared part of a schema was added",
     "a shared part of a schema was removed", _O),
    # Parameters.
    ("parameter_added_optional", "parameter_removed_optional", "an optional parameter was added",
     "an optional parameter was removed", _W),
    ("parameter_added_required", "parameter_removed_required", "a required parameter was added",
     "a required parameter was removed", _N),
    ("parameter_made_required", "parameter_made_optional", "a parameter became required",
     "a parameter became optional", _N),
    # What values are allowed.
    ("type_widened", "type_narrowed", "further types are allowed", "fewer types are allowed", _W),
    ("type_unconstrained", "type_constrained", "any type is allowed now", "only some types are allowed now", _W),
    ("enum_values_added", "enum_values_removed", "further values are allowed", "fewer values are allowed", _W),
    ("enum_dropped", "enum_introduced", "values are no longer confined to a list",
     "values are confined to a list now", _W),
    ("const_dropped", "const_introduced", "the value is no longer fixed", "the value is fixed now", _W),
    ("additional_properties_opened", "additional_properties_closed", "more unnamed parameters are allowed",
     "fewer unnamed parameters are allowed", _W),
    ("bounds_loosened", "bounds_tightened", "a bound was loosened or dropped", "a bound was tightened or set", _W),
    ("pattern_dropped", "pattern_introduced", "texts need not match a pattern any more",
     "texts must match a pattern now", _W),
    ("format_dropped", "format_introduced", "a format is no longer asked for", "a format is asked for now", _W),
    ("alternative_added", "alternative_removed", "a further alternative is allowed",
     "an alternative is no longer allowed", _W),
    ("alternatives_dropped", "alternatives_introduced", "values need not fit one of several alternatives any more",
     "values must fit one of several alternatives now", _W),
    ("condition_dropped", "condition_added", "a condition no longer applies", "a further condition applies", _W),
    ("default_removed", "default_added", "a default went away", "a default was stated", _O),
    # Hints. Clients may ask for no approval where a tool claims to be harmless: claims come and go by codes of
    # their own, and a claim that was reversed has another code than one that was not made before.
    ("read_only_unclaimed", "read_only_claimed", "the tool no longer claims to change nothing",
     "the tool claims to change nothing, and said nothing before", _W),
    ("read_only_unset", "read_only_set", "the tool said it changes nothing, and now says it changes things",
     "the tool said it changes things, and now says it changes nothing", _W),
    ("non_destructive_unclaimed", "non_destructive_claimed", "the tool no longer claims to destroy nothing",
     "the tool claims to destroy nothing, and said nothing before", _W),
    ("destructive_set", "destructive_unset", "the tool said it destroys nothing, and now says it may",
     "the tool said it may destroy, and now says it does not", _W),
    ("idempotent_unclaimed", "idempotent_claimed", "the tool no longer claims that repeating changes nothing more",
     "the tool claims that repeating changes nothing more, and said nothing before", _W),
    ("idempotent_unset", "idempotent_set", "the tool said that repeating changes nothing more, and now denies it",
     "the tool denied that repeating changes nothing more, and now says so", _W),
    ("closed_world_unclaimed", "closed_world_claimed", "the tool no longer claims to stay in a closed world",
     "the tool claims to stay in a closed world, and said nothing before", _W),
    ("open_world_set", "open_world_unset", "the tool said it stays in a closed world, and now says it leaves it",
     "the tool said it reaches beyond a closed world, and now denies it", _W),
    ("hint_default_stated", "hint_default_unstated", "a hint states what its absence meant",
     "a hint that stated its default went away", _O),
    ("risk_level_raised", "risk_level_lowered", "more of MCPTrust's risk words are in name and description",
     "fewer of MCPTrust's risk words are in name and description", _W),
)  # fmt: skip

_SAME = (
    ("schema_restated", "a part of a schema says the same in another form"),
    ("schema_dialect_changed", "the schema names another dialect"),
    ("schema_keyword_changed", "a part of a schema changed whose meaning is not compared"),
    ("schema_reference_changed", "a reference leads elsewhere, and could not be followed on both sides"),
    ("type_changed", "other types are allowed, neither more nor fewer"),
    ("enum_changed", "values were both added to and taken from a list"),
    ("const_changed", "the fixed value is another one"),
    ("bounds_restated", "a bound says the same by another keyword"),
    ("bounds_changed", "a bound is another one, neither looser nor tighter"),
    ("pattern_changed", "texts must match another pattern"),
    ("format_changed", "another format is asked for"),
    ("default_number_changed", "a numeric default is another number"),
    ("default_changed", "a default is another value"),
    ("annotation_changed", "an annotation changed that is no hint of the standard, or is no boolean"),
    ("contract_changed", "the Handshake contract changed"),
    ("meta_changed", "metadata changed"),
    ("icons_changed", "the icons changed"),
    ("execution_changed", "how the tool is to be executed changed"),
    ("name_changed", "the name changed"),
    ("mime_type_changed", "the media type changed"),
    ("arguments_reordered", "the arguments stand in another order"),
    ("field_changed", "a field changed that the standard does not name, or that has an unexpected form"),
    ("comparison_cut_short", "there is more to compare than the limits allow: look at both versions"),
)


def _all() -> Iterator[tuple[str, CodeInfo]]:
    for subject, words in _TEXTS.items():
        for one, other, title, other_title, direction in _TEXT_PAIRS:
            yield from _pair(
                f"{subject}_{one}", f"{subject}_{other}", title.format(words), other_title.format(words), direction
            )
        for suffix, title in _TEXT_SAME:
            yield f"{subject}_{suffix}", CodeInfo(title.format(words), _O, f"{subject}_{suffix}")
    for one, other, title, other_title, direction in _PAIRS:
        yield from _pair(one, other, title, other_title, direction)
    for code, title in _SAME:
        yield code, CodeInfo(title, _O, code)


def _pair(one: str, other: str, title: str, other_title: str, way: Direction) -> Iterator[tuple[str, CodeInfo]]:
    yield one, CodeInfo(title, way, other)
    yield other, CodeInfo(other_title, way.mirrored(), one)


CODES: Mapping[str, CodeInfo] = dict(_all())
"""Every code of a change."""

MIRRORS: Mapping[str, str] = {code: info.mirror for code, info in CODES.items()}
"""The code of the opposite change."""
