"""A release of the future: once its level is finalised, it writes a fact, members of facts and a state that ours lacks.

python -m tests.mixed.future COMMAND...
"""

# ruff: noqa: E402 -- what is patched has to be patched before others import it

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

import assay_stream

assay_stream.__version__ = "99.0.0"

from assay_stream.model import format_level

LEVEL = format_level.LEVEL = format_level.LEVEL + 1

from assay_stream.model import facts
from assay_stream.model.record import Output, Record
from tests.mixed import UNKNOWN

_KIND = b'["%s"' % UNKNOWN.encode()
_decode_fact = facts.decode_fact


def decode_fact(key: facts.FactKey, value: bytes) -> facts.Fact:
    content = orjson.loads(value)
    content.pop(UNKNOWN, None)
    return _decode_fact(key, orjson.dumps(content))


facts.decode_fact = decode_fact

from assay_stream.alerts import remembered
from assay_stream.bindings import state
from assay_stream.worker import stages

_take, _state_of = state.Bindings.take, remembered.state_of
_flush_facts, _flush_alerts = stages.RegistryState.flush, stages.AlertStageTable.flush


def take(self: state.Bindings, record: Record) -> None:
    if not (record.key or b"").startswith(_KIND):
        _take(self, record)


def state_of(key: str, content: dict[str, Any]) -> remembered.Remembered:
    return content if key == UNKNOWN else _state_of(key, content)


def flush_facts(self: stages.RegistryState, positions: Mapping[str, int]) -> list[Output]:
    outputs = _flush_facts(self, positions)
    if self.level < LEVEL or not outputs:
        return outputs
    kind = replace(outputs[0], key=_KIND + b',"server-0"]', value=b"{}")
    return [kind, *(replace(each, value=_with_member(each.value or b"{}")) for each in outputs)]


def _with_member(value: bytes) -> bytes:
    return orjson.dumps(orjson.loads(value) | {UNKNOWN: True})


def flush_alerts(self: stages.AlertStageTable, positions: Mapping[str, int]) -> list[Output]:
    if self.level >= LEVEL:
        self[UNKNOWN] = {UNKNOWN: True}
    return _flush_alerts(self, positions)


state.Bindings.take = take  # type: ignore[method-assign]
remembered.state_of = state_of
stages.RegistryState.flush = flush_facts  # type: ignore[method-assign]
stages.AlertStageTable.flush = flush_alerts  # type: ignore[method-assign]

if __name__ == "__main__":
    from assay_stream.cli import main

    sys.exit(main())
