"""Feeds the decoder and the stages with damaged records until time is up; a seed repeats what was found.

python -m tests.fuzz [--minutes 10] [--seed N]

The laws are those of ``tests/property``, and one more over records that were sound before somebody damaged them.
Each round takes a new seed, printed with what it found; the exit code is 1 if a law was broken.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from assay_stream import engine
from assay_stream.engine import EngineState
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Origin, Record, Role
from tests.property import test_cloudevents_laws as events
from tests.property import test_decode_laws as decoding
from tests.support.fleet import START, a_call_by, a_listing

_EXAMPLES_PER_ROUND = 400
_INPUTS = (Role.CALLS, Role.SNAPSHOTS, Role.CONTROL)
_TOKENS = [
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\u0000", b"\\ud800", b"\x00", b"\xff", b"null", b"true"),
    *(b"1e999", b"-0.0", b"NaN", b"9" * 400, b'"a":1,"a":2', b"[" * 200, "\u202e".encode(), b" " * 1_000),
]

SOUND = [
    value
    for number in range(4)
    for _, _, value in (
        a_listing(0, 0, number, number, START + timedelta(minutes=number)),
        a_call_by(0, 0, number, START + timedelta(minutes=number), f"snapshot-{number}" if number % 2 else None),
    )
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sound record in which parts are replaced, repeated, moved or cut off."""
    raw = bytearray(draw(st.sampled_from(SOUND)))
    for _ in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, len(raw)))
        end = draw(st.integers(start, min(len(raw), start + draw(st.sampled_from([0, 1, 4, 64])))))
        part = bytes(raw[start:end])
        raw[start:end] = draw(
            st.sampled_from(_TOKENS) | st.binary(max_size=8) | st.just(part * 2) | st.just(part[::-1])
        )
    return bytes(raw)


@given(st.lists(st.tuples(st.sampled_from(_INPUTS), damaged(), st.booleans()), min_size=1, max_size=8))
def stages_take_anything(records: Sequence[tuple[Role, bytes, bool]]) -> None:
    """Whatever the inputs hold, nothing raises, and each call gives evidence or a rejected copy."""
    state = EngineState(producer=Producer(version="fuzz"), snapshot_partitions=1)
    for offset, (role, value, has_key) in enumerate(records):
        origin = Origin(topic=role.value, partition=0, offset=offset)
        key = b"server-0" if has_key else None
        record = Record(role=role, origin=origin, key=key, value=value, headers=(), timestamp_ms=0)
        outputs = engine.process(state, record)
        if role is Role.CALLS:
            assert sum(output.role in (Role.EVIDENCE, Role.REJECTED) for output in outputs) == 1
        for output in outputs:
            if output.role is Role.BINDINGS:
                state.view.take(record._replace(role=output.role, key=output.key, value=output.value))


LAWS: Sequence[Callable[[], None]] = (
    stages_take_anything,
    decoding.test_decoding_is_total,
    decoding.test_fast_path_equals_strict_path,
    decoding.test_fast_path_equals_strict_path_on_broken_text,
    decoding.test_what_is_decoded_can_be_canonicalized,
    events.test_any_record_gives_an_event_or_an_error_of_ours,
    events.test_a_damaged_event_gives_an_event_or_an_error_of_ours,
    events.test_an_error_never_quotes_a_value,
)


def fuzz(seconds: float, first_seed: int, *, examples: int = _EXAMPLES_PER_ROUND) -> int:
    """Run rounds of all laws until time is up, and return how many examples were tried.

    Args:
        seconds: how long; the round in hand is finished.
        first_seed: the seed of the first round; each further one takes the next.
        examples: how many of each law in a round.

    Raises:
        AssertionError: where a law is broken; the seed and the law are on standard error.
    """
    profile = settings(
        max_examples=examples, deadline=None, database=None, derandomize=False, suppress_health_check=list(HealthCheck)
    )
    settings.register_profile("fuzz", profile)
    before = settings.get_current_profile_name()
    settings.load_profile("fuzz")
    try:
        return _rounds(time.monotonic() + seconds, first_seed, examples)
    finally:
        settings.load_profile(before)


def _rounds(until_s: float, first_seed: int, examples: int) -> int:
    tried = 0
    for number in itertools.count(first_seed):
        for law in LAWS:
            try:
                seed(number)(law)()
            except BaseException:
                print(f"seed {number}, {law.__name__}", file=sys.stderr)
                raise
            tried += examples
            if time.monotonic() >= until_s:
                return tried
    raise AssertionError("seeds do not end")


def main() -> int:
    """Run the command line; the exit code is 1 where a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the decoder and the stages.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32), help="first seed (default: random)")
    options = parser.parse_args()
    print(f"first seed {options.seed}, {options.minutes} minutes", flush=True)
    try:
        tried = fuzz(options.minutes * 60, options.seed)
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed is printed and it is a finding
        print(f"broken: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(f"{tried} examples, nothing broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
