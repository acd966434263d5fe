"""The state of one registry partition (``Registry``), the steps that change it, and the verdicts for proxies.

State changes by ``publish`` and ``retract`` of a step alone: a restart restores what was there.

Verdicts: the stream cannot block a call that already happened. It keeps the current verdict per tool in a compacted
topic, with the pins it rests on, so that a proxy can also check the definition that it sees itself against them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from assay_stream.bindings.controls import ACTION_WEIGHT, STATUS_WEIGHT, PinsInForce, check_pins
from assay_stream.bindings.offers import Offers
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.state import Bindings
from assay_stream.bindings.timeline import AFTER_ALL_US
from assay_stream.canonical.digest import canonicalize
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.envelope import Producer
from assay_stream.model.evidence import PinResult
from assay_stream.model.facts import Fact, Progress, encode_key, encode_value
from assay_stream.model.record import Output, Record, Role
from assay_stream.model.wire import FactKey
from assay_stream.schemes.fingerprint import Fingerprint
from assay_stream.schemes.hangar import Action, DigestPolicy

Verdicts = dict[str | None, bytes]
"""Value bytes by tool; ``None`` stands for the server's tools that have no verdict of their own."""


def verdicts_of(server_id: str, server: ServerBindings) -> Verdicts:
    """Return the current verdict on every tool of a server that has a pin or a policy.

    Of several definitions in force, the most severe result counts for the tool.
    """
    controls = server.controls
    if not (controls.pins or controls.policies):
        return {}
    verdicts: Verdicts = {}
    in_force: dict[str, list[Fingerprint | None]] = {}
    for digest in sorted(server.fleet.catalogues_in_force()):
        catalogue = server.catalogues[digest]
        for name, full in catalogue.tools.items():
            in_force.setdefault(name, []).append(None if full is None else server.fingerprint_of(catalogue, full))
    general = controls.policy_as_of("", AFTER_ALL_US)
    names = {*in_force, *controls.pins, *(policy.tool_name for policy in controls.policies if policy.tool_name)}
    for name in sorted(names):
        pins = controls.pins_as_of(name, AFTER_ALL_US)
        policy = controls.policy_as_of(name, AFTER_ALL_US)
        if not pins and policy is None:
            continue
        found = in_force.get(name, [None])
        results = [check_pins(pins, print_, listed=name in in_force, policy=policy) for print_ in found]
        worst = max(results, key=_gravity)
        verdicts[name] = _value(server_id, name, worst, pins, policy)
    if general is not None:
        unknown = check_pins(PinsInForce(approved={}, rejected={}), None, policy=general)
        verdicts[None] = _value(server_id, None, unknown, None, general)
    return verdicts


def changed_verdicts(record: Record, server_id: str, before: Verdicts, after: Verdicts) -> Iterator[Output]:
    for name in sorted(before.keys() | after.keys(), key=lambda name: (name is not None, name or "")):
        value = after.get(name)
        if value != before.get(name):
            yield Output(
                role=Role.VERDICTS,
                key=verdict_key(server_id, name),
                value=value,
                timestamp_ms=record.timestamp_ms,
                partition=record.origin.partition,
                label="verdict",
            )


def verdict_key(server_id: str, tool_name: str | None) -> bytes:
    return orjson.dumps([server_id, tool_name])


def _gravity(result: PinResult) -> tuple[int, int, str, str]:
    """Order results by action, then independently of the order of arrival."""
    action = -1 if result.action is None else ACTION_WEIGHT[result.action]
    return (action, STATUS_WEIGHT[result.status], result.scheme or "", result.observed or "")


def _value(
    server_id: str, tool_name: str | None, result: PinResult, pins: PinsInForce | None, policy: DigestPolicy | None
) -> bytes:
    content: dict[str, Any] = {"server_id": server_id, **result.as_json()}
    content["action"] = (result.action or Action.ALLOW).value
    if tool_name is not None:
        content["tool_name"] = tool_name
    if pins is not None:
        content["pins"] = dict(pins.approved)
        content["rejected"] = {scheme: list(values) for scheme, values in pins.rejected.items()}
    if policy is not None:
        content["policy"] = policy_text(policy)
    return canonicalize(content)


def policy_text(policy: DigestPolicy | None) -> dict[str, str] | None:
    return None if policy is None else {"enforcement": policy.enforcement.value, "unknown": policy.unknown.value}


class Registry:
    """The state of one registry partition; it changes only by the facts that are published.

    Args:
        producer: the producer named in the evidence of changes.
        partitions: number of partitions of the snapshot topic, ``None`` if unknown.
    """

    def __init__(self, *, producer: Producer, limits: Limits = DEFAULT_LIMITS, partitions: int | None = None) -> None:
        self.producer = producer
        self.limits = limits
        self.partitions = partitions
        self.bindings = Bindings(keep_definitions=True)
        self.offers = Offers(limits)
        self._verdicts: dict[str, Verdicts] = {}
        """Content of the verdict topic for each server evaluated so far; it follows from the bindings."""

    def verdicts(self, server_id: str, server: ServerBindings) -> Verdicts:
        found = self._verdicts.get(server_id)
        return self.revised_verdicts(server_id, server) if found is None else found

    def forget(self, server_id: str) -> None:
        """Drop a server whose facts have all been retracted."""
        self.bindings.drop(server_id)
        self._verdicts.pop(server_id, None)

    def revised_verdicts(self, server_id: str, server: ServerBindings) -> Verdicts:
        """Return what the verdict topic must hold for a server now, and remember it as published."""
        found = self._verdicts[server_id] = verdicts_of(server_id, server)
        return found


class Step:
    """What one input record changes in a registry, in order: each fact is applied as it is published.

    Args:
        record: the input record.

    Attributes:
        outputs: what to publish for it.
    """

    def __init__(self, registry: Registry, record: Record) -> None:
        self.registry, self.record = registry, record
        self.bindings, self.limits = registry.bindings, registry.limits
        self.outputs: list[Output] = []

    def publish(self, fact: Fact) -> None:
        partition, timestamp_ms = self.record.origin.partition, self.record.timestamp_ms
        self.bindings.apply(fact, partition=partition)
        self.outputs.append(fact_output(fact, partition=partition, timestamp_ms=timestamp_ms))

    def retract(self, *keys: FactKey) -> None:
        partition = self.record.origin.partition
        for key in keys:
            self.bindings.forget(key, partition=partition)
            self.outputs.append(_binding(key, None, "retracted", partition, self.record.timestamp_ms))


def fact_output(fact: Fact, *, partition: int, timestamp_ms: int = 0) -> Output:
    return _binding(fact.key(), encode_value(fact), fact.fact_kind, partition, timestamp_ms)


def _binding(key: FactKey, value: bytes | None, what: str, partition: int, timestamp_ms: int) -> Output:
    return Output(Role.BINDINGS, encode_key(key), value, (), timestamp_ms, partition, f"fact:{what}")


def progress(*, topic: str, partition: int, position: int) -> Output:
    return fact_output(Progress(topic=topic, partition=partition, position=position), partition=partition)
