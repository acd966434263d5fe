"""Steps that wait for a thread of their own."""

from __future__ import annotations

from assay_stream.observe.backlog import Backlog


def test_steps_run_in_order_and_one_that_fails_stops_no_other() -> None:
    """Failures are counted; the last step runs last."""
    done: list[int] = []
    backlog = Backlog("test", bytes_max=10, last=lambda: done.append(-1))
    assert backlog.add(5, lambda: done.append(1))
    assert backlog.add(0, lambda: done.append(1 // 0))
    assert backlog.add(5, lambda: done.append(2))
    assert not backlog.add(1, lambda: done.append(3)), "the backlog is full"
    assert backlog.add(0, lambda: done.append(4)), "a step of no size always fits"
    backlog.start()
    backlog.finish()
    backlog.join()
    assert (done, backlog.failures) == ([1, 2, 4, -1], 1)
