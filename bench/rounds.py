"""Programs measured in interleaved rounds: the ratios of each round, with an interval.

The interval is Student's t of the logarithms of the rounds' ratios. What the machine does to both programs in a round
cancels out in its ratio, and a ratio is as likely to be doubled as halved. In 95 of 100 runs it covers the true ratio.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.results import Row

ROUNDS_MIN = 3
"""Of two rounds the interval is so wide that it says nothing."""

_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Two-sided quantiles of Student's t by degrees of freedom, from 1; the last is used for more, and is wider."""

QUIET_BUSY_MAX = 0.05
"""Share of the machine's processors that others may use between rounds on a quiet machine."""
_LOOKS_MAX = 10


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How one program compares with another over all rounds.

    Args:
        median: the ratio of the median round.
        low: lower end of the 95 % interval.
        high: upper end.
        rounds: how many rounds there were.
    """

    median: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Compare two programs round by round.

    Args:
        ours: a figure of each round, above 0.
        theirs: the other program's, of the same rounds.

    Raises:
        ValueError: fewer than ``ROUNDS_MIN`` rounds, or not the same.
    """
    logs = [math.log(one / other) for one, other in zip(ours, theirs, strict=True)]
    if len(logs) < ROUNDS_MIN:
        raise ValueError(f"an interval takes at least {ROUNDS_MIN} rounds, there are {len(logs)}")
    return _ratio(statistics.median(logs), statistics.fmean(logs), _error(logs), len(logs))


def change_of(new: Sequence[float], old: Sequence[float]) -> Ratio:
    """Compare two runs that share no rounds, each by the ratios of its own.

    Args:
        new: ratios of the rounds of one run.
        old: of the other.

    Raises:
        ValueError: fewer than ``ROUNDS_MIN`` rounds of either.
    """
    if min(len(new), len(old)) < ROUNDS_MIN:
        raise ValueError(f"an interval takes at least {ROUNDS_MIN} rounds of each run: {len(new)} and {len(old)}")
    logs, before = ([math.log(ratio) for ratio in each] for each in (new, old))
    rounds = min(len(logs), len(before))  # fewer degrees of freedom than Welch's, and so a wider interval
    return _ratio(
        statistics.median(logs) - statistics.median(before),
        statistics.fmean(logs) - statistics.fmean(before),
        math.hypot(_error(logs), _error(before)),
        rounds,
    )


def _error(logs: Sequence[float]) -> float:
    return statistics.stdev(logs) / math.sqrt(len(logs))


def _ratio(median: float, mean: float, error: float, rounds: int) -> Ratio:
    margin = _T_95[min(rounds - 1, len(_T_95)) - 1] * error
    return Ratio(median=math.exp(median), low=math.exp(mean - margin), high=math.exp(mean + margin), rounds=rounds)


@dataclass(frozen=True, kw_only=True)
class Ticks:
    """Processor time of the whole machine since it started, in ticks of the kernel."""

    used: int
    stolen: int
    all: int

    @classmethod
    def read(cls, stat: Path = Path("/proc/stat")) -> Ticks:
        """Read them (proc(5))."""
        user, nice, system, idle, iowait, irq, softirq, steal, *_ = map(
            int, stat.read_text(encoding="ascii").splitlines()[0].split()[1:]
        )
        used = user + nice + system + irq + softirq
        return cls(used=used, stolen=steal, all=used + idle + iowait + steal)

    def share_since(self, before: Ticks) -> float:
        """Return which share of the processors was used or stolen since then."""
        return (self.used + self.stolen - before.used - before.stolen) / max(1, self.all - before.all)


class QuietCheck:
    """Looks between rounds, while nothing is measured, whether others use the machine.

    Attributes:
        busy: share of the processors that was in use, of each look.
    """

    def __init__(self) -> None:
        self.busy: list[float] = []

    def look(self, seconds: float = 1.0) -> float:
        """Return the share of the processors in use over some time, and note it.

        What the program before has left to the broker passes: some looks are given to that.
        """
        for _ in range(_LOOKS_MAX):
            before = Ticks.read()
            time.sleep(seconds)
            found = Ticks.read().share_since(before)
            if found <= QUIET_BUSY_MAX:
                break
        self.busy.append(found)
        return found

    @property
    def is_quiet(self) -> bool:
        """Whether no look found more than ``QUIET_BUSY_MAX``."""
        return max(self.busy, default=0.0) <= QUIET_BUSY_MAX

    def __str__(self) -> str:
        verdict = "quiet" if self.is_quiet else "NOT QUIET: its figures are no results"
        return f"machine between rounds: {max(self.busy, default=0.0):.0%} busy at most, {verdict}"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A program beside ours; a ratio is ``None`` where there were too few rounds of both.

    Args:
        rate: its calls per second / ours.
        cpu: its processor time per call / ours.
    """

    rate: Ratio | None
    cpu: Ratio | None


def compared(rows: Mapping[str, Sequence[Row]], ours: str) -> dict[str, Beside]:
    """Compare every program with ours in the rounds that both have.

    Args:
        rows: by program, one for each round, with ``round``, ``calls_per_s`` and ``cpu_us``.
        ours: the name of our program.
    """
    own = {row["round"]: row for row in rows[ours]}

    def ratio(found: Sequence[Row], figure: str) -> Ratio | None:
        pairs = [(row[figure], own[row["round"]][figure]) for row in found if row["round"] in own]
        return ratio_of(*zip(*pairs, strict=True)) if len(pairs) >= ROUNDS_MIN else None

    return {
        name: Beside(rate=ratio(found, "calls_per_s"), cpu=ratio(found, "cpu_us"))
        for name, found in rows.items()
        if found and name != ours
    }
