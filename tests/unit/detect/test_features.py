"""What a sentence weighs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay_stream.detect.scorer import _CONCEPTS_OF, Weights, features_of

SYMBOLS = st.lists(st.sampled_from([*sorted(_CONCEPTS_OF), "x", "the", "-word"]), max_size=30)


@given(st.lists(SYMBOLS, max_size=5), SYMBOLS)
def test_a_sentence_weighs_what_its_features_do(weighed: list[list[str]], symbols: list[str]) -> None:
    known = sorted({feature for each in [*weighed, symbols[:12]] for feature in features_of(each)})
    weights = {feature: 1 << index for index, feature in enumerate(known)}
    expected = sum(weights.get(feature, 0) for feature in features_of(symbols))
    assert Weights(weights).sum_of(tuple(symbols)) == expected
