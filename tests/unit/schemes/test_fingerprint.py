"""Fingerprints, what changed between two, and the memory of them."""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from assay_stream.canonical.digest import jcs_digest
from assay_stream.errors import InputError
from assay_stream.schemes import assay_tool as assay
from assay_stream.schemes.fingerprint import SCHEMES, ContentCache, changed_fields, fingerprint

NEED_A_NAME = ("assay.v1", "assay.schema_hash", "assay.meta_hash", "assay.p60", "hangar.v1_2", "hangar.v2")
MCPTRUST = ("mcptrust.description_hash", "mcptrust.input_schema_hash", "mcptrust.risk_level")
TOOL: dict[str, Any] = {"name": "t", "description": "Does.", "inputSchema": {"type": "object"}}


def test_a_fingerprint_has_every_scheme() -> None:
    found = fingerprint(TOOL, server_id="s")
    assert found.schemes.keys() == SCHEMES.keys()
    assert found.errors == {}
    assert found.definition_digest() == str(assay.definition_digest(TOOL, server_id="s"))
    assert found.full == str(jcs_digest(TOOL))


def test_the_scope_enters_the_definition_digest_alone() -> None:
    scoped, unscoped = fingerprint(TOOL, server_id="s"), fingerprint(TOOL, server_id=None)
    differing = {name for name in SCHEMES if scoped.schemes[name] != unscoped.schemes[name]}
    assert differing == {"assay.v1"}
    assert scoped.full == unscoped.full


@pytest.mark.parametrize(
    ("tool", "errors"),
    [
        ({"name": "t", "inputSchema": []}, dict.fromkeys(("assay.v1", *MCPTRUST), "input_schema_not_object")),
        ({"inputSchema": {}}, dict.fromkeys(NEED_A_NAME, "tool_name_missing")),
        ({"name": " "}, dict.fromkeys(NEED_A_NAME[:4], "tool_name_missing")),
        (
            {"name": 7},
            dict.fromkeys([*NEED_A_NAME[:4], "hangar.v2"], "tool_name_missing") | dict.fromkeys(MCPTRUST, "wrong_type"),
        ),
    ],
)
def test_a_scheme_that_refuses_says_why(tool: dict[str, Any], errors: dict[str, str]) -> None:
    found = fingerprint(tool, server_id=None)
    assert found.errors == errors
    assert found.schemes.keys() == SCHEMES.keys() - errors.keys()
    assert found.full == str(jcs_digest(tool))


def test_what_cannot_be_canonicalised_has_no_fingerprint() -> None:
    with pytest.raises(InputError):
        fingerprint({"name": "t", "title": "\ud800"}, server_id=None)


def test_the_full_digest_tells_what_bounded_schemes_do_not() -> None:
    """A flipped annotation changes the full digest though not the definition digest v1."""
    one = fingerprint(TOOL | {"annotations": {"destructiveHint": False}}, server_id=None)
    other = fingerprint(TOOL | {"annotations": {"destructiveHint": True}}, server_id=None)
    assert one.definition_digest() == other.definition_digest()
    assert one.full != other.full
    assert changed_fields(one, other) == ("annotations",)


def test_changed_fields_are_those_added_removed_and_altered() -> None:
    before = fingerprint(TOOL | {"title": "T"}, server_id=None)
    after = fingerprint(TOOL | {"description": "Else.", "icons": []}, server_id=None)
    assert changed_fields(before, after) == ("description", "icons", "title")
    assert changed_fields(before, before) == ()


def test_the_cache_forgets_what_was_longest_unused() -> None:
    cache: ContentCache[int] = ContentCache(2)
    cache.put(b"a", 1)
    cache.put(b"b", 2)
    assert cache.get(b"a") == 1
    cache.put(b"c", 3)
    assert [cache.get(key) for key in (b"a", b"b", b"c")] == [1, None, 3]


def test_the_cache_holds_no_more_than_its_weight() -> None:
    cache: ContentCache[int] = ContentCache(10, 100)
    cache.put(b"a", 1, 60)
    cache.put(b"a", 1, 60)
    cache.put(b"b", 2, 40)
    assert (cache.get(b"a"), cache.get(b"b")) == (1, 2)
    cache.put(b"c", 3, 40)
    assert [cache.get(key) for key in (b"a", b"b", b"c")] == [None, 2, 3]
    cache.put(b"d", 4, 101)
    assert [cache.get(key) for key in (b"b", b"c", b"d")] == [2, 3, None]


def test_threads_can_use_the_memory_at_once() -> None:
    """One partition may drop what another one finds at that moment."""
    cache: ContentCache[int] = ContentCache(3, 30)

    def use(first: int) -> int:
        for number in range(first, first + 20_000):
            cache.put(b"%d" % (number % 7), number, number % 11)
            cache.get(b"%d" % (number % 5))
        return first

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(use, range(4))) == list(range(4))
    finally:
        sys.setswitchinterval(interval_s)
