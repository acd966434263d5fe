"""Name sketches: a bounded summary of a server's tool names, to tell how much two servers have in common.

A sketch holds the least digests of the names. Of two sketches, the least digests of both together are a fair
sample of all names of both: how many of the sample stand in both sketches is how many names they share.
Source: A. Broder, On the resemblance and containment of documents, 1997.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import sha256

from assay_stream.limits import DEFAULT_LIMITS

_DIGEST_CHARS = 8
_SHARED_PART = 4
"""Two servers share names if one in as many of all their names is in both. Versions of one product do; products
that both have a tool ``search`` do not."""


def name_sketch(names: Iterable[str]) -> tuple[str, ...]:
    """Return the sketch of some names, in order."""
    digests = {sha256(name.encode()).hexdigest()[:_DIGEST_CHARS] for name in names}
    return tuple(sorted(digests)[: DEFAULT_LIMITS.name_sketch_max])


def share_names(one: Collection[str], other: Collection[str]) -> bool:
    """Tell whether two servers have so many names in common that they may be versions of one product."""
    in_both = set(one).intersection(other)
    # Most servers have nothing in common: no more can be in the sample than there is in both.
    if len(in_both) * _SHARED_PART < max(len(one), len(other), 1):
        return False
    sample = sorted({*one, *other})[: DEFAULT_LIMITS.name_sketch_max]
    return len(in_both.intersection(sample)) * _SHARED_PART >= len(sample)
