"""Two objects of metadata (``_meta``): the Handshake contract in it, and the rest.

What a change of the contract means is told by the contract's own rules; here it is only seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from assay_stream.core.meaning.change import ABSENT, Change, member
from assay_stream.core.meaning.values import changed, same

_CONTRACT = "handshake"


def compare_meta(path: str, before: Any, after: Any) -> Iterator[Change]:
    """Yield the changes between two objects of metadata, one for each member.

    Args:
        path: where they stand.
        before: the metadata before, ``ABSENT`` where there was none.
        after: the metadata after, in the same way.
    """
    was, now = ({} if side is ABSENT else side for side in (before, after))
    if not isinstance(was, dict) or not isinstance(now, dict) or not (was or now):
        yield changed("meta_changed", path, before, after)
        return
    for name in sorted(was.keys() | now.keys()):
        old, new = was.get(name, ABSENT), now.get(name, ABSENT)
        if not same(old, new):
            code = "contract_changed" if name == _CONTRACT else "meta_changed"
            yield changed(code, member(path, name), old, new)
