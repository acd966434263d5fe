"""What is said of a signature, step by step, and which key a tool is pinned to.

The checks themselves are facts here: that a real key makes them is tested where they are made.
"""

import pytest

from assay_stream.bindings.as_of import start_of
from assay_stream.bindings.checks import (
    MISSING,
    UNCHECKED,
    check_signature,
    first_uses_since,
    pinned_key,
    revised_first_uses,
)
from assay_stream.bindings.server import ServerBindings
from assay_stream.model.control import AnyControlFact, FirstUse, Signatures, Signed
from assay_stream.model.facts import Fact
from assay_stream.model.record import Origin
from assay_stream.schemes.schemapin import SchemaPinErrorCode
from tests.support.facts import SERVER, a_catalogue, a_discovery, a_key_decision, bindings_with, seen, signed_by

SIGNED, CHECKED = signed_by("k", "t")
LISTED = seen("alice", 10, "one", offset=0, signatures="set")
BARE = seen("alice", 10, "one", offset=0)


def a_server(*facts: Fact) -> ServerBindings:
    bindings = bindings_with(a_catalogue("one", {"t": "a"}))
    for fact in facts:
        bindings.apply(fact)
    server = bindings.server(SERVER)
    settle(server)
    return server


def settle(server: ServerBindings) -> None:
    _, new = revised_first_uses(server, start_of(0))
    for use in new:
        server.controls.apply(use)


def said(server: ServerBindings, time_us: int = 20, tool: str = "t", listed: object = LISTED) -> str | None:
    result = check_signature(server.controls, listed, tool, time_us)  # type: ignore[arg-type]
    if result is None:
        return None
    return "valid" if result.valid else result.error_code


def signed_elsewhere(domain: str | None) -> Signatures:
    return Signatures(server_id=SERVER, digest="set", tools={"t": Signed(domain, "c2ln", "0" * 64)})


# --- step 1: is there a signature ---------------------------------------------------------------------------


def test_a_signature_is_missing_where_an_operator_accepted_a_key() -> None:
    """Whoever accepts a key for a tool expects it signed; no document need have been found."""
    server = a_server(BARE, a_key_decision("accept", "k", time_us=5, offset=0, tool_name="t"))
    assert said(server, listed=BARE) == MISSING
    assert said(server, 4, listed=BARE) is None
    assert said(server, tool="u", listed=BARE) is None


def test_a_lost_set_of_signatures_is_no_signature() -> None:
    assert said(a_server(LISTED, a_discovery("k", time_us=1, offset=0))) is None


# --- step 2: whose is it ------------------------------------------------------------------------------------


def test_without_a_domain_the_only_one_discovered_is_meant() -> None:
    one: list[Fact] = [a_discovery("k", time_us=1, offset=0), signed_elsewhere(None), CHECKED, LISTED]
    assert said(a_server(*one)) == "valid"
    two = a_discovery("l", time_us=2, offset=1, domain="example.org")
    assert said(a_server(*one, two)) == SchemaPinErrorCode.KEY_NOT_FOUND
    assert said(a_server(signed_elsewhere(None), LISTED)) == SchemaPinErrorCode.KEY_NOT_FOUND


def test_a_domain_that_was_discovered_later_is_not_known_before() -> None:
    server = a_server(
        a_discovery("k", time_us=1, offset=0),
        a_discovery("l", time_us=30, offset=1, domain="example.org"),
        signed_elsewhere(None),
        CHECKED,
        LISTED,
    )
    assert (said(server, 29), said(server, 30)) == ("valid", SchemaPinErrorCode.KEY_NOT_FOUND)


@pytest.mark.parametrize("domain", ["example.org", ""])
def test_a_domain_that_is_not_the_server_s_is_a_mismatch(domain: str) -> None:
    """A sender cannot choose whose key it is held against."""
    server = a_server(a_discovery("k", time_us=1, offset=0), signed_elsewhere(domain), CHECKED, LISTED)
    assert said(server) == SchemaPinErrorCode.DOMAIN_MISMATCH


# --- step 3: the key document -------------------------------------------------------------------------------


def test_a_document_that_is_read_and_is_none_takes_the_key_away() -> None:
    broken = a_discovery(None, time_us=12, offset=1, status="invalid")
    server = a_server(a_discovery("k", time_us=1, offset=0), SIGNED, CHECKED, LISTED, broken)
    assert said(server, 12) == SchemaPinErrorCode.DISCOVERY_INVALID


# --- step 4: revocation -------------------------------------------------------------------------------------


def test_an_acceptance_takes_a_revocation_back_only_where_it_speaks() -> None:
    signatures, checked = signed_by("k", "t", "u")
    server = a_server(
        a_discovery("k", time_us=1, offset=0),
        signatures,
        checked,
        LISTED,
        a_key_decision("revoke", "k", time_us=15, offset=1),
        a_key_decision("accept", "k", time_us=16, offset=2, tool_name="t"),
    )
    assert (said(server, tool="t"), said(server, tool="u")) == ("valid", SchemaPinErrorCode.KEY_REVOKED)


def test_no_operator_takes_the_document_s_revocation_back() -> None:
    """Its holder says that the key is lost."""
    revoking = a_discovery("k", time_us=1, offset=0, revoked=("k",))
    accepted = a_key_decision("accept", "k", time_us=15, offset=1)
    assert said(a_server(revoking, SIGNED, CHECKED, LISTED, accepted)) == SchemaPinErrorCode.KEY_REVOKED


# --- step 5: the pinned key ---------------------------------------------------------------------------------


def test_an_accepted_key_goes_before_the_first_used() -> None:
    accepted = a_key_decision("accept", "l", time_us=15, offset=1)
    server = a_server(a_discovery("k", time_us=1, offset=0), SIGNED, CHECKED, LISTED, accepted)
    assert said(server) == SchemaPinErrorCode.KEY_PIN_MISMATCH
    assert pinned_key(server.controls, "example.com", "t", 20) == "l"
    assert pinned_key(server.controls, "example.org", "t", 20) is None


# --- step 6: the signature ----------------------------------------------------------------------------------


def test_a_signature_that_nobody_checked_is_not_called_invalid() -> None:
    assert said(a_server(a_discovery("k", time_us=1, offset=0), SIGNED, LISTED)) == UNCHECKED


def test_a_tool_without_a_canonical_form_says_so() -> None:
    nothing = Signatures(server_id=SERVER, digest="set", tools={"t": Signed("example.com", "c2ln", None)})
    server = a_server(a_discovery("k", time_us=1, offset=0), nothing, CHECKED, LISTED)
    assert said(server) == SchemaPinErrorCode.SCHEMA_CANONICALIZATION_FAILED


# --- first uses ---------------------------------------------------------------------------------------------


def a_use(time_us: int, origin: Origin, key: str = "k") -> FirstUse:
    return FirstUse(
        server_id=SERVER, domain="example.com", tool_name="t", fingerprint=key, time_us=time_us, origin=origin
    )


def the_use(*facts: AnyControlFact | Fact) -> FirstUse | None:
    return first_uses_since(a_server(*facts), start_of(0)).get(("example.com", "t"))


def test_the_first_use_is_where_list_and_key_first_met() -> None:
    early, late = a_discovery("k", time_us=1, offset=0), a_discovery("k", time_us=15, offset=0)
    assert the_use(early, SIGNED, CHECKED, LISTED) == a_use(10, LISTED.origin)
    assert the_use(late, SIGNED, CHECKED, LISTED) == a_use(15, late.origin)


def test_a_use_that_was_none_is_undone() -> None:
    server = a_server(a_discovery("k", time_us=1, offset=0), SIGNED, CHECKED, LISTED)
    server.controls.apply(a_key_decision("revoke", "k", time_us=5, offset=1))
    assert revised_first_uses(server, start_of(5)) == ([("first_use", SERVER, "example.com", "t")], [])


def test_a_use_whose_list_was_folded_away_stands() -> None:
    server = a_server(a_discovery("k", time_us=1, offset=0), SIGNED, CHECKED, LISTED)
    server.remove_observation("alice", LISTED.origin)
    server.add_observation(seen("alice", 30, "one", offset=5, signatures="set"))
    assert revised_first_uses(server, start_of(5))[0] == []
    server.truncate_history("alice", 30)
    assert revised_first_uses(server, start_of(5)) == ([], [])


def test_a_use_whose_key_document_was_folded_away_stands() -> None:
    """A domain that shows many documents does not undo what was pinned under the first."""
    first = a_discovery("k", time_us=1, offset=0)
    server = a_server(first, SIGNED, CHECKED, LISTED, a_discovery("l", time_us=15, offset=1))
    server.controls.forget(first.key())
    assert revised_first_uses(server, start_of(5)) == ([], [])
    assert pinned_key(server.controls, "example.com", "t", 20) == "k"
