"""The level of each code of a change under the profile ``soc``.

Chosen so that what upgrades of real servers are made of stays low by its meaning alone (other words, an optional
parameter more, a schema or a hint stated), and that a change which lets an agent be steered or a caller's guard
fall is high: a parameter that agents must now fill, a confinement that went away, a default or a stated hint that
was turned round. What new words bring is not told by a code: signs raise the level.
"""

from __future__ import annotations

from collections.abc import Mapping

OUTPUT_MAX = "low"
"""The most that a change of an output schema counts, texts apart: it says what comes back, not what is done."""

_INFORMATIONAL = """
    description_whitespace_changed title_whitespace_changed
    parameter_description_whitespace_changed parameter_title_whitespace_changed
    title_typography_changed parameter_title_typography_changed
    parameter_title_added parameter_title_removed parameter_title_spelling_changed
    schema_restated schema_dialect_changed bounds_restated hint_default_stated hint_default_unstated
    arguments_reordered risk_level_lowered
"""

_LOW = """
    description_added description_words_added description_words_changed
    parameter_description_added parameter_description_words_added parameter_description_words_changed
    schema_declared parameter_added_optional type_widened
    description_removed description_words_removed description_typography_changed description_spelling_changed
    parameter_description_removed parameter_description_words_removed parameter_description_typography_changed
    parameter_description_spelling_changed
    title_added title_removed title_words_added title_words_removed title_words_changed title_spelling_changed
    parameter_title_words_added parameter_title_words_removed parameter_title_words_changed
    schema_definition_added schema_definition_removed
    parameter_removed_optional parameter_removed_required parameter_made_optional
    type_narrowed type_constrained enum_values_removed enum_introduced const_introduced
    additional_properties_closed bounds_tightened pattern_introduced
    format_introduced format_dropped format_changed
    alternative_removed alternatives_introduced condition_added default_added default_removed
    read_only_claimed non_destructive_claimed
    idempotent_claimed idempotent_unclaimed idempotent_set idempotent_unset
    closed_world_claimed annotation_changed meta_changed icons_changed execution_changed name_changed
    mime_type_changed risk_level_raised
"""

_MEDIUM = """
    parameter_made_required type_changed enum_values_added enum_changed const_changed
    bounds_loosened bounds_changed pattern_changed alternative_added default_number_changed
    schema_keyword_changed schema_reference_changed
    read_only_unclaimed non_destructive_unclaimed closed_world_unclaimed open_world_set open_world_unset
    contract_changed field_changed
"""

_HIGH = """
    schema_undeclared parameter_added_required type_unconstrained enum_dropped const_dropped
    additional_properties_opened pattern_dropped alternatives_dropped condition_dropped default_changed
    read_only_set read_only_unset destructive_set destructive_unset comparison_cut_short
"""

BY_CODE: Mapping[str, str] = {
    code: level
    for level, codes in (
        ("informational", _INFORMATIONAL),
        ("low", _LOW),
        ("medium", _MEDIUM),
        ("high", _HIGH),
    )
    for code in codes.split()
}
"""Name of the level of each code."""
