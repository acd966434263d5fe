"""``assay-stream topics plan`` and ``topics migrate``: from calls in any partition to calls keyed by server."""

import asyncio
from functools import partial
from typing import Annotated

import typer

from assay_stream.cli.options import AsJson, Bootstrap
from assay_stream.cli.output import print_json, print_line
from assay_stream.cli.shared import NOTHING_FOUND, as_admin
from assay_stream.config import command_settings
from assay_stream.kafka.migration import MigrationPlan, migrate, plan_migration
from assay_stream.text.escaping import visible


def topics_plan(bootstrap_servers: Bootstrap = None, as_json: AsJson = False) -> None:
    """Print what is left to do until calls are keyed by server, so that each join worker loads its share only.

    Changes nothing. Exit code 0: there are steps, 5: nothing is left to do, 1: the partition counts do not fit, and
    the steps name a way around.
    """
    plan = asyncio.run(as_admin(command_settings(bootstrap_servers=bootstrap_servers), plan_migration))
    if as_json:
        print_json(_as_json(plan))
    else:
        for line in _lines(plan):
            print_line(visible(line))
    if not plan.fits:
        raise typer.Exit(1)
    if not plan.steps:
        raise typer.Exit(NOTHING_FOUND)


def topics_migrate(
    bootstrap_servers: Bootstrap = None,
    disk_free_bytes: Annotated[
        int | None, typer.Option(min=0, help="Bytes free on the brokers' disks together, in place of asking them.")
    ] = None,
) -> None:
    """Create the topics that calls keyed by server need; no record is moved or deleted. May be repeated.

    What is left to do is printed: it restarts workers, and so is yours.
    """
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    plan, created = asyncio.run(as_admin(settings, partial(migrate, disk_free_bytes=disk_free_bytes)))
    for name in created:
        print_line(visible(f"created {name}"))
    if not created:
        print_line("nothing to create: both topics exist")
    for step in plan.steps:
        if not step.is_ours:
            print_line(visible(f"left to you: {step.text}"))


def _as_json(plan: MigrationPlan) -> dict[str, object]:
    return {
        "partitions": {role.value: count for role, count in plan.partitions.items()},
        "fits": plan.fits,
        "calls_looked_at": plan.sample.looked_at,
        "calls_misplaced": plan.sample.misplaced,
        "disk_bytes_needed": plan.needed_bytes,
        "disk_bytes_free": plan.free_bytes,
        "steps": [
            {"by": "topics migrate" if step.is_ours else "you", "step": step.text, "undo": step.undo}
            for step in plan.steps
        ],
    }


def _lines(plan: MigrationPlan) -> list[str]:
    counts = ", ".join(f"{role.value} {count or 'missing'}" for role, count in plan.partitions.items())
    sample = plan.sample
    lines = [f"partitions: {counts}"]
    if plan.fits:
        lines.append(
            f"calls in another partition than their server's: {sample.misplaced} of the latest {sample.looked_at}"
        )
        free = "" if plan.free_bytes is None else f", of {plan.free_bytes} that are free"
        lines.append(f"disk that copies of such calls may take, all replicas: {plan.needed_bytes} bytes{free}")
    for number, step in enumerate(plan.steps, start=1):
        lines.append(f"{number}. {'topics migrate' if step.is_ours else 'you'}: {step.text}")
        lines.append(f"   undo: {step.undo}")
    return lines if plan.steps else [*lines, "nothing to do: calls are keyed by server"]
