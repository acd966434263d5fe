"""Every bound of the system in one place, with its unit in its name and its reason beside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what is accepted, kept and published."""

    record_bytes_max: int = 8 * 1024 * 1024
    """One input record. The largest real ``tools/list`` in the captures is 22 KB; 8 MiB leaves room for a
    hundred such servers behind one gateway, and bounds what one record can cost to decode."""

    depth_max: int = 127
    """Nesting of JSON containers: what Assay's own parser accepts, so both refuse the same input."""

    integer_digits_max: int = 309
    """Digits of one integer: the largest double has 309."""

    tools_max: int = 5_000
    """Tools in one snapshot. A full fingerprint costs under a millisecond each, so a hostile list costs
    seconds at most."""

    tool_fields_max: int = 64
    """Top-level fields of one tool. Each gets a digest of its own; real tools have ten at most."""

    field_name_chars_max: int = 128
    """Characters of the name of such a field. The names of changed fields stand in findings and alerts."""

    definition_bytes_max: int = 4 * 1024 * 1024
    """One tool definition in canonical form, which can be longer than what was received (``1e20``). Its record
    holds it and its projection, and must fit into one Kafka message."""

    introduced_chars_max: int = 32_768
    """Characters of new text that are searched in one definition, in half a second at worst. A whole real
    server has some 7,000; more than this is a sign by itself."""

    alert_observers_max: int = 1_000
    """Observers that an alert counts one by one; further ones are counted together."""

    identifier_chars_max: int = 1_024
    """Characters of one identifier (server, observer, tool, snapshot, call). They become Kafka keys and
    alert fields."""

    time_max_s: int = 4_102_444_800
    """Latest event time, seconds since the epoch: the year 2100. A clock that says more is broken."""

    future_max_ms: int = 24 * 3_600 * 1_000
    """How far an event time may lie after its record's own timestamp: a day covers any time-zone mistake."""

    rejections_max: int = 64
    """Rejected snapshots remembered per server; beyond that the oldest two become one."""

    signature_chars_max: int = 1_024
    """Characters of one signature. A P-256 signature has 96 in base64."""

    discoveries_max: int = 64
    """Distinct key documents remembered per server and domain; real domains change theirs once in years."""

    discovery_bytes_max: int = 256 * 1024
    """One SchemaPin discovery document. A key and a few fields take under a kilobyte; the rest is room for over
    three thousand revoked keys."""

    timeline_entries_max: int = 512
    """Observations kept per server and observer. Older repeats are folded first, see ``core.timeline``."""


DEFAULT_LIMITS = Limits()
