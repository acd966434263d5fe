"""Two objects of metadata (``_meta``): the Handshake contract in it, and the rest.

What a change of the contract means is told by the contract's own rules; here it is only seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from assay_stream.drift.change import ABSENT, Change
from assay_stream.drift.equality import Values
from assay_stream.drift.path import Path
from assay_stream.drift.values import changed, sorted_names

_CONTRACT = "handshake"


def compare_meta(path: Path | str, before: Any, after: Any, values: Values | None = None) -> Iterator[Change]:
    """Yield the changes between two objects of metadata, one for each member.

    Args:
        path: where they stand.
        before: the metadata before, ``ABSENT`` where there was none.
        after: the metadata after, in the same way.
        values: of the comparison, those of a new one without it.
    """
    path, values = Path.of(path), Values() if values is None else values
    was, now = ({} if side is ABSENT else side for side in (before, after))
    if not isinstance(was, dict) or not isinstance(now, dict) or not (was or now):
        yield changed("meta_changed", path, before, after, values)
        return
    for name in sorted_names(values, was, now):
        old, new = was.get(name, ABSENT), now.get(name, ABSENT)
        if not values.same(old, new):
            code = "contract_changed" if name == _CONTRACT else "meta_changed"
            yield changed(code, path.member(name), old, new, values)
