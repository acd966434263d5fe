"""Dialogues about records that nobody can read: whose lists they put out of force, and whose they do not."""

import json

import pytest

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Headers, Role
from tests.acceptance.test_binding_dialogue import (
    DIGEST_OF_FIRST,
    DIGEST_OF_SECOND,
    FIRST,
    SECOND,
    Dialogue,
    answer,
    findings_of,
)
from tests.acceptance.test_list_changed_dialogue import answers
from tests.acceptance.test_pins_dialogue import Talk

REJECTED = ("none", None, "snapshot_rejected")
BOUND = ("observer", DIGEST_OF_FIRST, None)


def by(observer_id: str) -> Headers:
    return (("assay-observer-id", observer_id.encode()),)


def fleet() -> Talk:
    talk = Talk()
    for name in ("proxy-1", "proxy-2"):
        talk.lists(0, FIRST, observer_id=name, headers=by(name))
    return talk.lists(0, FIRST, observer_id="old-proxy")


@pytest.fixture
def talk() -> Talk:
    return fleet()


def calls_of_all(talk: Dialogue, second: float = 9) -> list[tuple[str, str | None, str | None]]:
    for name in ("proxy-1", "proxy-2", "old-proxy"):
        talk.calls(second, observer_id=name)
    outcome = talk.ends()
    assert answers(talk.joined_late())[-3:] == answers(outcome)[-3:]
    return answers(outcome)[-3:]


def test_junk_of_one_observer_ends_what_that_one_saw_and_no_more(talk: Talk) -> None:
    talk.garbles(1, by("proxy-1"))
    assert calls_of_all(talk) == [REJECTED, BOUND, BOUND]


def test_junk_of_nobody_ends_what_observers_without_a_header_saw(talk: Talk) -> None:
    """They could be the ones whose server made its list unreadable; the others would have said so."""
    talk.garbles(1)
    assert calls_of_all(talk) == [BOUND, BOUND, REJECTED]
    (finding,) = [found for found in findings_of(talk.ends()) if found["kind"] == "snapshot_rejected"]
    assert "observer_id" not in finding


def test_a_server_that_turns_unreadable_for_one_observer_keeps_no_old_digest_there(talk: Talk) -> None:
    talk.garbles(1, by("proxy-1"))
    talk.lists(2, FIRST, observer_id="proxy-2", headers=by("proxy-2"))
    assert answer(talk.calls(3).ends()) == REJECTED


def test_an_observer_whose_first_list_is_unreadable_is_not_bound_by_what_others_saw(talk: Talk) -> None:
    talk.garbles(1, by("new-proxy"))
    assert answer(talk.calls(2, observer_id="new-proxy").ends()) == REJECTED


def test_its_next_good_list_binds_the_observer_again(talk: Talk) -> None:
    talk.garbles(1, by("proxy-1")).calls(2)
    talk.lists(3, FIRST, observer_id="proxy-2", headers=by("proxy-2")).calls(4)
    talk.lists(5, SECOND, headers=by("proxy-1")).calls(6)
    outcome = talk.ends()
    assert answers(outcome) == [REJECTED, REJECTED, ("observer", DIGEST_OF_SECOND, None)]
    refused = next(found["uid"] for found in findings_of(outcome) if found["kind"] == "snapshot_rejected")
    told = [json.loads(output.value or b"") for output in outcome.of(Role.FINDINGS)]
    ends = [entry["time_us"] % 60_000_000 for entry in told if refused in entry.get("uids", ())]
    assert ends == [5_000_000]


def test_a_header_binds_nothing(talk: Talk) -> None:
    """Junk that claims to be of an observer without a list, or of the old one, exempts nobody from anything."""
    talk.garbles(1, by("old-proxy"))
    talk.lists(2, FIRST, observer_id="old-proxy")
    talk.garbles(3, by("proxy-2")).garbles(4)
    assert calls_of_all(talk) == [BOUND, REJECTED, REJECTED]


def test_an_observer_that_begins_to_send_the_header_is_exempt_from_its_first_such_list_on() -> None:
    talk = Talk().lists(0, FIRST)
    talk.garbles(1).calls(2)
    talk.lists(3, FIRST, headers=by("proxy-1")).garbles(4).calls(5)
    assert answers(talk.ends()) == [REJECTED, BOUND]


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("assay-observer-id", b""),),
        (("assay-observer-id", b" "),),
        (("assay-observer-id", b"\xff"),),
        (("assay-observer-id", b"x" * 5_000),),
        by("proxy-1") + by("proxy-1"),
        (("assay-observer-id", None),),
    ],
    ids=["absent", "empty", "blank", "not UTF-8", "too long", "twice", "null"],
)
def test_a_header_that_names_nobody_is_none(talk: Talk, headers: Headers) -> None:
    """What cannot be attributed ends force where no header was ever sent."""
    talk.garbles(1, headers)
    assert calls_of_all(talk) == [BOUND, BOUND, REJECTED]


def test_a_list_whose_header_names_another_observer_is_refused_on_the_senders_account(talk: Talk) -> None:
    """The sender is who the header names; it cannot speak for, nor against, somebody else."""
    talk.lists(1, SECOND, observer_id="proxy-2", headers=by("proxy-1"))
    assert calls_of_all(talk) == [REJECTED, BOUND, BOUND]
    assert talk.ends().refusals == ["observer_mismatch"]


def test_an_announcement_whose_header_names_another_observer_is_refused(talk: Talk) -> None:
    """Or anybody could unbind anybody under a name that is not theirs."""
    talk.announces(1, by("proxy-1"), observer_id="proxy-2")
    assert calls_of_all(talk) == [REJECTED, BOUND, BOUND]


def test_the_flood_of_one_observer_does_not_evict_what_is_remembered_of_another(talk: Talk) -> None:
    talk.garbles(1, by("proxy-2"))
    for number in range(DEFAULT_LIMITS.rejections_max + 20):
        talk.garbles(2 + number, by("proxy-1"))
        talk.lists(2.5 + number, FIRST, headers=by("proxy-1"))
    facts = {output.key: output.value for output in talk.joined_in_order().of(Role.BINDINGS)}
    kept = [value for key, value in facts.items() if value is not None and (key or b"").startswith(b'["rejection"')]
    assert sum(b"proxy-1" in value for value in kept) == DEFAULT_LIMITS.rejections_max
    assert sum(b"proxy-2" in value for value in kept) == 1
    assert answer(talk.calls(1.5, observer_id="proxy-2").joined_late()) == REJECTED


def test_made_up_observers_do_not_fill_the_memory_and_bring_nobody_to_be_bound(talk: Talk) -> None:
    """Beyond the bound they stand as one; those with lists of their own do not feel it."""
    count = DEFAULT_LIMITS.unlisted_observers_max + 100
    for number in range(count):
        talk.garbles(1, by(f"made-up-{number}"))
    facts = {output.key: output.value for output in talk.joined_in_order().of(Role.BINDINGS)}
    kept = [value for key, value in facts.items() if value is not None and (key or b"").startswith(b'["rejection"')]
    assert len(kept) <= DEFAULT_LIMITS.unlisted_observers_max + 1
    for number in (0, count - 1):
        talk.calls(2, observer_id=f"made-up-{number}")
    talk.calls(2).calls(2, observer_id="proxy-2")
    assert answers(talk.ends()) == [REJECTED, REJECTED, BOUND, BOUND]


def test_verdicts_flip_only_for_what_the_junk_concerns() -> None:
    """One byte of junk does not have every proxy refuse a pinned tool."""
    talk = Talk().pins(0, DIGEST_OF_FIRST).policy(1, "block", "block")
    for name in ("proxy-1", "proxy-2"):
        talk.lists(2, FIRST, observer_id=name, headers=by(name))
    quiet = talk.ends().all_bytes(Role.VERDICTS)
    talk.garbles(3).garbles(4, by("proxy-1")).garbles(5, by("made-up"))
    assert talk.ends().all_bytes(Role.VERDICTS) == quiet
    assert talk.garbles(6, by("proxy-2")).ends().all_bytes(Role.VERDICTS) != quiet
