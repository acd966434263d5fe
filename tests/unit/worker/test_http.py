"""What the pages say: health, readiness, and what hangs."""

from __future__ import annotations

from assay_stream.worker.host import Health, index_page


def a_process(**still_s: float) -> Health:
    health = Health(stall_limit_s=60)
    for name, seconds in still_s.items():
        health.watch(name, lambda: True, still_s=lambda seconds=seconds: seconds)  # type: ignore[misc]
    return health


def test_a_stage_that_moves_is_alive_and_ready() -> None:
    health = a_process(join=60.0)
    assert health.liveness() == (200, {"ok": True, "stuck": []})
    assert health.readiness() == (200, {"ready": True, "stages": {"join": True}})


def test_a_stage_that_hangs_is_neither_and_is_named() -> None:
    """Though it says itself that it is ready; the others are as they are."""
    health = a_process(join=61.0, registry=1.0)
    assert health.liveness() == (503, {"ok": False, "stuck": ["join"]})
    assert health.readiness() == (503, {"ready": False, "stages": {"join": False, "registry": True}})


def test_a_stage_that_is_not_ready_is_alive() -> None:
    """Whoever restores is not restarted for it."""
    health = Health(stall_limit_s=60)
    health.watch("alerts", lambda: False, still_s=lambda: 5.0)
    assert health.liveness()[0] == 200
    assert health.readiness() == (503, {"ready": False, "stages": {"alerts": False}})


def test_of_alternatives_one_is_enough() -> None:
    """One receiver that is down is named, and leaves the process ready; all of them, or what is needed, do not."""
    up = {"soc": False, "siem": True, "brokers": True}
    health = Health()
    for name in up:
        health.watch(name, lambda name=name: up[name], is_alternative=name != "brokers")  # type: ignore[misc]
    assert health.readiness() == (200, {"ready": True, "stages": up})
    up["siem"] = False
    assert health.readiness() == (503, {"ready": False, "stages": up})
    up |= {"siem": True, "brokers": False}
    assert health.readiness() == (503, {"ready": False, "stages": up})


def test_a_failure_is_seen_on_both_pages() -> None:
    """Also where every stage would be ready."""
    health = a_process(join=0.0)
    health.failed = True
    assert (health.liveness()[0], health.readiness()[0]) == (503, 503)


def test_the_first_page_says_what_runs_and_links_to_the_others() -> None:
    """Names are escaped, though operators and not strangers choose them."""
    page = index_page(a_process(join=0.0, **{"<b>": 61.0}), "1.2")
    assert "assay-stream 1.2" in page
    assert "<td>join<td>ready" in page
    assert "<td>&lt;b&gt;<td>not ready" in page
    assert all(f'href="/{name}"' in page for name in ("readyz", "healthz", "metrics"))
