"""Bounds of `list-watch`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingLimits:
    """Bounds of ``list-watch``: what one server can cost, and what it cannot take from the others."""

    servers_max: int = 1_000
    """Servers of one process; each may have a connection or a child process of its own."""

    listings_max: int = 64
    """Listings in progress. One that hangs holds its place for ``listing_limit_s`` at most."""

    listings_per_host_max: int = 4
    """Listings in progress on one host, and of servers that are started here."""

    interval_default_s: float = 3_600.0
    """Between two listings of a server that announces nothing."""

    interval_min_s: float = 1.0
    """The shortest interval that may be configured."""

    interval_max_s: float = 7 * 86_400.0
    """The longest one. Observations are kept a year by default."""

    ttl_min_s: float = 60.0
    """The shortest time after which a server's own ``ttlMs`` has it listed again, unless the interval is shorter."""

    announced_gap_s: float = 5.0
    """Between two listings for announced changes: a server may announce one after the other."""

    announced_gap_max_s: float = 300.0
    """That gap doubles up to here while changes are announced without a pause: 8 MB a time would add up."""

    retry_first_s: float = 5.0
    """Pause after a failure; it doubles with each further one, up to the interval."""

    listing_limit_s: float = 120.0
    """One listing from connecting to its last page. Servers that ``npx`` or ``uvx`` fetches take a minute to start."""

    answer_limit_s: float = 30.0
    """One answer. Lists take milliseconds; what comes first waits for the server's start as well."""

    probe_limit_s: float = 10.0
    """The answer to ``server/discover``, which servers of earlier revisions may ignore."""

    pages_max: int = 64
    """Pages of one list. What goes on is published as incomplete."""

    message_bytes_max: int = 8 * 1024 * 1024
    """One message: the largest record. A longer list cannot be published, and is published as unreadable."""

    connection_bytes_max: int = 64 * 1024 * 1024
    """What is read of one connection: eight of the largest lists. Then it is closed, and opened when next due."""

    connection_messages_max: int = 10_000
    """Messages read of one connection. Servers send a few hundred notifications on a busy day."""

    credential_bytes_max: int = 64 * 1024
    """One file of a credential. Access tokens with many groups have some 16 KB."""

    stop_limit_s: float = 2.0
    """How long a server's process may take to end after its input was closed, and again after SIGTERM."""


LISTING_LIMITS = ListingLimits()
