"""Every example rule of Prometheus fires on the trouble that it is for, and not short of it: judged by promtool."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool on the PATH: make debian (as root)"
)

RULES = Path(__file__).resolve().parents[2] / "deploy/prometheus/rules.yml"
Series = Mapping[str, str]
"""Series in promtool's notation, a sample a minute: ``1x30`` is 1 for half an hour, ``0+5x30`` grows by 5."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What makes a rule fire, and what comes close and does not.

    Args:
        at: when it is judged, minutes.
        fires: series of metrics without their prefix ``assay_stream_``, but for ``up``.
    """

    at: int
    fires: Series
    quiet: Series


def histogram(name: str, labels: str, *, slow: str, fast_le: str, slow_le: str) -> Series:
    """A hundred observations a minute; ``slow`` is how many are counted as fast."""
    return {
        f'{name}_bucket{{{labels},le="{fast_le}"}}': slow,
        f'{name}_bucket{{{labels},le="{slow_le}"}}': "0+100x90",
        f'{name}_bucket{{{labels},le="+Inf"}}': "0+100x90",
    }


UNBOUND, BOUND = 'outputs_total{stage="join",what="unbound:no_list"}', 'outputs_total{stage="join",what="bound:own"}'
REJECTED, DEAD = (
    'outputs_total{stage="join",what="rejected:too_deep"}',
    'outputs_total{stage="forward-soc",what="dead_letter"}',
)
LAG, READ = 'lag_records{stage="join",topic="t",partition="0"}', 'records_read_total{stage="join"}'
BEHIND, COMMIT = 'store_behind_seconds{instance="a"}', 'store_last_commit_seconds{instance="a"}'
SIGN_INS = 'console_sign_ins_total{instance="a",outcome="failed"}'
TRANSACTION, EVIDENCE = "transaction_seconds", "evidence_latency_seconds"

CASES = {
    "AssayStreamProcessDown": Case(
        at=10, fires={'up{job="assay-stream"}': "1x2 0x20"}, quiet={'up{job="assay-stream"}': "1x2 0x3 1x20"}
    ),
    "AssayStreamStageNotReady": Case(
        at=20, fires={'stage_ready{stage="join"}': "0x30"}, quiet={'stage_ready{stage="join"}': "0x9 1 0x30"}
    ),
    "AssayStreamBrokersSilent": Case(
        at=20, fires={"brokers_silent_seconds": "61x30"}, quiet={"brokers_silent_seconds": "60x30"}
    ),
    "AssayStreamLagGrows": Case(at=40, fires={LAG: "20000+9x60"}, quiet={LAG: "90000-9x60"}),
    "AssayStreamReadsNothingThoughThereIsLag": Case(
        at=40, fires={LAG: "5x60", READ: "100x60"}, quiet={LAG: "5x60", READ: "100+1x60"}
    ),
    "AssayStreamCallsHeld": Case(
        at=15,
        fires={'records_buffered{stage="join"}': "3x20"},
        quiet={'records_buffered{stage="join"}': "3x9 0 3x20", 'records_buffered{stage="ingest"}': "3x20"},
    ),
    "AssayStreamInputExpired": Case(
        at=15,
        fires={'input_expired_total{stage="join"}': "0x10 5x20"},
        quiet={'input_expired_total{stage="join"}': "5x30"},
    ),
    "AssayStreamRejects": Case(at=50, fires={REJECTED: "0+9x60"}, quiet={REJECTED: "0+5x60"}),
    "AssayStreamUnbound": Case(
        at=80, fires={UNBOUND: "0+6x90", BOUND: "0+94x90"}, quiet={UNBOUND: "0+4x90", BOUND: "0+96x90"}
    ),
    "AssayStreamBatchesFail": Case(
        at=35,
        fires={'partitions_reopened_total{stage="join"}': "0+1x40"},
        quiet={'partitions_reopened_total{stage="join"}': "0x30 1x20"},
    ),
    "AssayStreamTransactionsSlow": Case(
        at=30,
        fires=histogram(TRANSACTION, 'stage="join"', slow="0+98x90", fast_le="1", slow_le="2.5"),
        quiet=histogram(TRANSACTION, 'stage="join"', slow="0+100x90", fast_le="1", slow_le="2.5"),
    ),
    "AssayStreamRecoverySlow": Case(
        at=5, fires={'opening_seconds{stage="join"}': "121x9"}, quiet={'opening_seconds{stage="join"}': "120x9"}
    ),
    "AssayStreamAlertsNotDelivered": Case(
        at=15,
        fires={'records_buffered{stage="forward-soc"}': "1x20"},
        quiet={
            'records_buffered{stage="forward-soc"}': "1x4 0x20",
            'records_buffered{stage="join"}': "9x20",
            DEAD: "3x20",
        },
    ),
    "AssayStreamIngestUnavailable": Case(
        at=15,
        fires={'outputs_total{stage="ingest",what="unavailable"}': "0+1x20"},
        quiet={'outputs_total{stage="ingest",what="unavailable"}': "7x20"},
    ),
    "AssayStreamClientsStale": Case(at=15, fires={"clients_stale": "1x20"}, quiet={"clients_stale": "1x4 0 1x4 0x20"}),
    "AssayStreamServersNotListed": Case(
        at=80, fires={"servers_failing": "1x90"}, quiet={"servers_failing": "1x40 0 1x60"}
    ),
    "AssayStreamStoreBehind": Case(at=20, fires={BEHIND: "301x30"}, quiet={BEHIND: "300x30"}),
    "AssayStreamStoreStands": Case(
        at=30, fires={BEHIND: "61x40", COMMIT: "0x40"}, quiet={BEHIND: "61x40", COMMIT: "0+60x40"}
    ),
    "AssayStreamConsoleStoreOld": Case(
        at=20, fires={"console_store_age_seconds": "301x30"}, quiet={"console_store_age_seconds": "300x30"}
    ),
    "AssayStreamConsoleFails": Case(
        at=16,
        fires={'console_requests_total{page="/",status="503"}': "0+1x30"},
        quiet={'console_requests_total{page="/",status="404"}': "0+9x30"},
    ),
    "AssayStreamConsoleSignInsFail": Case(at=16, fires={SIGN_INS: "0+2x30"}, quiet={SIGN_INS: "0+1x30"}),
    "AssayStreamConsoleDecisionsFail": Case(
        at=12,
        fires={'console_decisions_total{outcome="failed"}': "0x10 1x20"},
        quiet={
            'console_decisions_total{outcome="failed"}': "4x30",
            'console_decisions_total{outcome="published"}': "0+9x30",
        },
    ),
    "AssayStreamCriticalAlertUnreviewed": Case(
        at=5,
        fires={'alert_unreviewed_age_seconds{severity="critical"}': "3601x9"},
        quiet={
            'alert_unreviewed_age_seconds{severity="critical"}': "3600x9",
            'alert_unreviewed_age_seconds{severity="low"}': "99999x9",
        },
    ),
    "AssayStreamHighAlertUnreviewed": Case(
        at=5,
        fires={'alert_unreviewed_age_seconds{severity="high"}': "28801x9"},
        quiet={'alert_unreviewed_age_seconds{severity="high"}': "28800x9"},
    ),
    "AssayStreamEvidenceLate": Case(
        at=30,
        fires=histogram(EVIDENCE, 'since="logged"', slow="0+98x90", fast_le="60", slow_le="300"),
        # By a wrong clock of an observer alone.
        quiet=histogram(EVIDENCE, 'since="observed"', slow="0+50x90", fast_le="60", slow_le="300"),
    ),
    "AssayStreamObserversSilent": Case(
        at=110,
        fires={'observers_alive{stage="join"}': "10x60 4x90"},
        quiet={'observers_alive{stage="join"}': "10x60 5x90"},
    ),
    "AssayStreamVersionsDiffer": Case(
        at=370,
        fires={'build_info{version="1",instance="a"}': "1x400", 'build_info{version="2",instance="b"}': "1x400"},
        quiet={'build_info{version="1",instance="a"}': "1x400", 'build_info{version="2",instance="b"}': "1x300"},
    ),
}


def test_every_rule_has_a_case() -> None:
    """One that nobody has seen fire may never do."""
    [group] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    assert {rule["alert"] for rule in group["rules"]} == set(CASES)


def judged(alert: str, at: int, series: Series, *, fires: bool) -> dict[str, object]:
    """What promtool is to find: the sample that stands for one firing alert, or none."""
    return {
        "name": f"{alert} {'fires' if fires else 'is quiet'}",
        "interval": "1m",
        "input_series": [
            {"series": name if name.startswith("up{") else f"assay_stream_{name}", "values": values}
            for name, values in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": f"{at}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }


def test_each_rule_fires_on_its_trouble_and_not_short_of_it(tmp_path: Path) -> None:
    tests = [
        judged(alert, case.at, series, fires=fires)
        for alert, case in CASES.items()
        for series, fires in ((case.fires, True), (case.quiet, False))
    ]
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
