"""Write the schemas and the generated parts of the documentation: ``python docs/generate.py --write``, or ``--check``.

A page names the table that belongs in it with ``<!-- table: name -->``; the text between that line and
``<!-- end -->`` is replaced.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path

from prometheus_client import CollectorRegistry

from assay_stream.config import Settings
from assay_stream.console.service import ConsoleMetrics
from assay_stream.detect import RULES, DetectionRule
from assay_stream.drift import CODES
from assay_stream.drift.severity import DEFAULT_PROFILE, PROFILES, Level, assess
from assay_stream.kafka.topics import ACCESS, topic_names, topic_table
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.kinds import KINDS, Kind
from assay_stream.model.record import Role
from assay_stream.model.schemas import all_files, asyncapi
from assay_stream.plugins import RECEIVERS
from assay_stream.report.export import COLUMNS
from assay_stream.worker.telemetry import Metrics

ROOT = Path(__file__).resolve().parent.parent
DOCS, SCHEMAS = ROOT / "docs", ROOT / "schemas"
_BLOCK = re.compile(r"(<!-- table: ([\w.-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_BY_CHANGES = {Kind.TOOL_CHANGED, Kind.PROMPT_CHANGED, Kind.TEMPLATE_CHANGED, Kind.INSTRUCTIONS_CHANGED}
_DAY_MS = 24 * 3_600 * 1_000


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """Return a Markdown table; bars in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        f"|{'|'.join(cells)}|\n" if cells[0] == "---" else f"| {' | '.join(map(_cell, cells))} |\n" for cells in lines
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def texts_below_fields(cls: type) -> dict[str, str]:
    """Return the docstrings of the fields of a class by name. Pydantic could, but at each start of a process."""
    body = next(node.body for node in ast.parse(inspect.getsource(cls)).body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def settings_table() -> str:
    """Return every ``ASSAY_STREAM_*`` variable with its default and the text below its field."""
    meanings = texts_below_fields(Settings)
    return table(
        ["variable", "default", "meaning"],
        (
            [
                f"`ASSAY_STREAM_{name.upper()}`",
                f"`{field.default}`" if field.default is not None and str(field.default) else "",
                meanings[name],
            ]
            for name, field in Settings.model_fields.items()
        ),
    )


def error_code_table() -> str:
    """Return every error code with what raises it and how to fix it."""
    codes = tomllib.loads((DOCS / "data" / "error_codes.toml").read_text(encoding="utf-8"))
    return table(
        ["code", "raised when", "how to fix it"],
        ([f"`{code}`", entry["raised_when"], entry["remedy"]] for code, entry in sorted(codes.items())),
    )


def metric_table() -> str:
    """Return every metric that a process serves.

    Raises:
        SystemExit: a metric has no entry in ``data/metrics.toml``.
    """
    registries = Metrics(CollectorRegistry()).registry, ConsoleMetrics().registry
    entries = tomllib.loads((DOCS / "data" / "metrics.toml").read_text(encoding="utf-8"))
    found = (family for registry in registries for family in registry.collect())
    names = dict.fromkeys(family.name + ("_total" if family.type == "counter" else "") for family in found)
    if missing := [name for name in names if name not in entries]:
        raise SystemExit(f"explain in docs/data/metrics.toml, then run make docs: {', '.join(missing)}")
    return table(
        ["metric", "meaning", "look into it when"],
        ([f"`{name}`", entries[name]["meaning"], entries[name]["look_when"]] for name in names),
    )


def topic_table_text() -> str:
    """Return every topic with what it carries, how it is partitioned and retained, and who writes it."""
    settings = Settings(input_partitions=4, call_partitions=8)
    channels = asyncapi()["channels"]
    rows = []
    for spec in topic_table(settings, agents="NAME"):
        writers = [actor.value for actor, access in ACCESS.items() if spec.role in access.writes]
        rows.append(
            [
                f"`{spec.name}`",
                channels[spec.role.value]["description"],
                "few" if spec.partitions == settings.input_partitions else "many",
                _retention(spec.config["cleanup.policy"], spec.config.get("retention.ms", "")),
                ", ".join(writers),
            ]
        )
    return table(["topic", "what it carries", "partitions", "retention", "written by"], rows)


def _retention(policy: str, retention_ms: str) -> str:
    if policy == "compact":
        return "compacted"
    return "unlimited" if retention_ms == "-1" else f"{int(retention_ms) // _DAY_MS} days"


def kind_table() -> str:
    """Return every kind of finding as an analyst meets it in an alert."""
    rows = []
    for kind, info in KINDS.items():
        if kind is Kind.ALERTS_FOLDED:
            severity = "that of its most severe member"
        elif kind in _BY_CHANGES:
            severity = "by what changed"
        else:
            severity = str(assess(DEFAULT_PROFILE, kind.value, default=Level(info.severity_id)))
        lasts = "until it ends" if info.lasts else "event"
        rows.append(
            [f"`{kind.value}`", info.title, severity, lasts, info.next_step, ", ".join((*info.atlas, *info.owasp))]
        )
    return table(["kind", "finding", "severity", "lasts", "next step", "ATLAS, OWASP"], rows)


def change_code_table() -> str:
    """Return every code of a change with its direction, its opposite and its level."""
    return table(
        ["code", "meaning", "direction", "opposite", "level under `soc`"],
        (
            [f"`{code}`", info.title, str(info.direction), f"`{info.opposite}`", info.level]
            for code, info in CODES.items()
        ),
    )


def indicator_table() -> str:
    """Return every rule on new text with its level and its reason."""
    return table(["indicator", "level", "why"], ([f"`{r.id}`", _levels(r), r.reason] for r in RULES))


def _levels(rule: DetectionRule) -> str:
    in_instructions = rule.instructions_level
    return str(Level(rule.level)) + (f", in instructions {Level(in_instructions)}" if in_instructions else "")


def profile_table() -> str:
    """Return every severity profile."""
    said = tomllib.loads((DOCS / "data" / "profiles.toml").read_text(encoding="utf-8"))
    return table(["profile", "severities"], ([f"`{name}`", said[name]] for name in PROFILES))


def limit_table() -> str:
    """Return every limit with its value; the reasons stand in ``limits.py``."""
    return table(
        ["limit", "value"],
        ([f"`{name}`", f"{getattr(DEFAULT_LIMITS, name):,}"] for name in Limits.__dataclass_fields__),
    )


def access_table() -> str:
    """Return what each role may do, as ``topics acls`` grants it."""
    rows = []
    for actor, access in ACCESS.items():
        name = access.group.removesuffix("-")
        group = [f"`<group_prefix>-{name}{'-*' if access.group.endswith('-') else ''}`"] * bool(name)
        group += [f"describes `<group_prefix>-{name}{'*' if name.endswith('-') else ''}`" for name in access.sees]
        ids = f"`<group_prefix>-{name}-*`" if access.is_transactional else ""
        topics = [_topics(roles) for roles in (access.reads, access.writes, access.looks_at)]
        rows.append([actor.value, access.purpose, *topics, ", ".join(group), ids])
    head = ["role", "purpose", "reads", "writes", "describes only", "consumer group", "transactional ids"]
    return table(head, rows)


def _topics(roles: frozenset[Role]) -> str:
    if roles == frozenset(Role):
        return "all"
    names = topic_names(Settings(), agents="*")
    return ", ".join(f"`{names[role]}`" for role in Role if role in roles)


def column_table(dataset: str) -> str:
    """Return the columns of one exported dataset.

    Args:
        dataset: its name, as in ``<name>.parquet``.
    """
    columns = next(columns for kind, columns in COLUMNS.items() if str(kind) == dataset)
    rows = (
        [f"`{c.name}`", str(c.type), f"`{'.'.join(c.path)}`" if c.path else "the whole record, as it was"]
        for c in columns
    )
    return table(["column", "type", "source in the record"], rows)


def receiver_table() -> str:
    """Return the settings that each type of receiver has beside the common ones."""
    return table(
        ["type", "field", "meaning"],
        (
            [f"`{kind}`", f"`{name}`" + (", required" if setting.is_required else ""), setting.meaning]
            for kind in RECEIVERS.names()
            for name, setting in RECEIVERS.load(kind).settings.items()
        ),
    )


def mixed_releases_table() -> str:
    """Return what releases next to each other make of each other's records, as ``make mixed`` last found it."""
    found = tomllib.loads((DOCS / "data" / "mixed_releases.toml").read_text(encoding="utf-8"))
    return table(
        [
            "",
            "the release before writes",
            "this release writes, the one before reads",
            "the next one writes, its level finalised",
        ],
        (
            [meeting, *(outcomes.get(writer, "") for writer in ("older", "newer", "future"))]
            for meeting, outcomes in found.items()
        ),
    )


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "error-codes": error_code_table,
    "metrics": metric_table,
    "topics": topic_table_text,
    "kinds": kind_table,
    "change-codes": change_code_table,
    "indicators": indicator_table,
    "profiles": profile_table,
    "limits": limit_table,
    "access": access_table,
    "receivers": receiver_table,
    "mixed-releases": mixed_releases_table,
    **{f"columns.{kind}": partial(column_table, str(kind)) for kind in COLUMNS},
}


def pages() -> dict[Path, str]:
    """Return every schema and every page that has a generated table: its path and its text as it should be."""
    wanted = {SCHEMAS / name: text for name, text in all_files().items()}
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if _BLOCK.search(text):
            wanted[path] = _BLOCK.sub(lambda block: f"{block[1]}{TABLES[block[2]]()}{block[4]}", text)
    return wanted


def main(arguments: list[str]) -> int:
    """Write the pages, or name those that are out of date; returns the exit code."""
    if arguments not in (["--write"], ["--check"]):
        print("usage: python docs/generate.py --write | --check", file=sys.stderr)
        return 2
    wanted = pages()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    stale += [path for path in SCHEMAS.glob("*.json") if path not in wanted]
    for path in stale:
        if path not in wanted:
            print(f"no longer generated: {path.relative_to(ROOT)}; remove it", file=sys.stderr)
        elif arguments == ["--write"]:
            path.write_text(wanted[path], encoding="utf-8")
        else:
            print(f"out of date: {path.relative_to(ROOT)}; run make docs", file=sys.stderr)
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
