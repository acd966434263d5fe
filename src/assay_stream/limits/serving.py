"""Bounds of what listens: the HTTP tap, feeds, ingest, forwarding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Bounds of the HTTP tap."""

    header_bytes_max: int = 64 * 1024
    """One header field, and the request line. Access tokens with many groups have some 16 KB."""

    exchanges_max: int = 4_096
    """Requests in progress, of all servers together; every open stream is one. Each holds two sockets and some buffers
    of 64 KB. Further ones are refused."""

    clients_max: int = 8_192
    """Connections of clients. Where there are more, the longest idle one makes room: twice as many as requests, so that
    there is one."""

    idle_client_s: float = 75.0
    """How long a connection may stand without a whole request, or its next one: longer than proxies keep theirs."""

    connections_max: int = 2_000
    """Sessions, and clients without one, that are followed per server. Each remembers the lists that it was given, some
    hundred kilobytes at most for real servers. Of those without open calls the one that rested longest is forgotten
    first."""

    backlog_bytes_max: int = 64 * 1024 * 1024
    """What may wait to be inspected: two of the longest messages. No request waits for the observer."""

    server_backlog_bytes_max: int = 48 * 1024 * 1024
    """What of one server may wait so, where a tap has several: one of the longest messages, and more. A server whose
    messages take long to inspect must not have those of others pass unobserved."""

    kept_bytes_max: int = 256 * 1024 * 1024
    """Parts of messages of one server that wait for their ends, and bodies to be ruled on: eight of the longest. What
    goes beyond is not read, or, if it is to be ruled on, refused."""

    inspect_pause_s: float = 0.01
    """How long what passed waits to be inspected together with what comes next. Records are that much later,
    and the two threads take turns less often, which costs more than inspecting a small call."""

    exchange_cost_bytes: int = 4_096
    """What an exchange counts for in the backlog beside its bodies."""

    token_chars_max: int = 64 * 1024
    """Characters of an access token that is read for its claims; longer ones are opaque."""

    connect_limit_s: float = 10.0
    """How long connecting to a server may take, TLS included."""

    answer_limit_s: float = 300.0
    """How long a server may take to begin its answer. Tools may work for minutes before they say anything."""

    body_pause_limit_s: float = 60.0
    """How long a client may pause within the body of its request."""

    idle_connection_s: float = 3.0
    """How long a connection to a server is kept for the next request: less than the 5 s after which common servers
    close theirs, so that no request meets a connection that is about to go."""

    stop_limit_s: float = 2.0
    """How long requests in progress may take to end when the tap is stopped; open streams are cut."""

    upstreams_max: int = 256
    """Servers of one tap."""


HTTP_LIMITS = HttpLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedLimits:
    """Bounds of a feed, which works within its gateway's process."""

    views_max: int = 2_000
    """Clients that are followed, by server. Each remembers the lists that it was given, some hundred kilobytes at most
    for real servers. Of those without open calls the one that rested longest is forgotten first."""

    message_bytes_max: int = 8 * 1024 * 1024
    """The largest list, arguments or result that are read: a record of the snapshot topic. The gateway waits while they
    are encoded and hashed. Larger ones are noted, never hashed."""

    cursor_chars_max: int = 8_192
    """A cursor that goes with each server's part of a list of several: it is copied and encoded for every one of them.
    Of a longer one it is known only that there is one."""

    calls_max: int = 10_000
    """Calls of one gateway whose answers may be outstanding, where the answer comes as a request of its own."""

    answer_limit_s: float = 300.0
    """How long their answers are waited for, as long as a tap waits for the beginning of one."""

    request_bytes_max: int = 16 * 1_048_576
    """One request of a gateway that asks over gRPC: a message, and what goes with it."""

    requests_max: int = 64
    """Such requests at a time, with those that wait for a thread; further ones are refused at once. A gigabyte, if all
    were of the largest size."""

    threads_max: int = 8
    """Threads that answer them. Decisions never wait; parsing and hashing hold the interpreter."""


FEED_LIMITS = FeedLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestLimits:
    """Bounds of ``ingest``."""

    body_bytes_max: int = 16 * 1024 * 1024
    """One request, also once it is decompressed: two of the largest records, or a thousand calls of 16 KB."""

    events_max: int = 1_000
    """Events of one batch: what a client has to send again at most."""

    pending_bytes_max: int = 128 * 1024 * 1024
    """Requests that are read, and events that wait for Kafka, of all clients together. Further ones get 429."""

    client_bytes_max: int = 32 * 1024 * 1024
    """The same of one client: a quarter, so that one alone cannot keep the others out."""

    requests_max: int = 1_024
    """Requests in progress, each with a socket and a buffer of 64 KB. Further ones get 429."""

    read_limit_s: float = 60.0
    """How long a client may take for the body of a request."""

    ack_limit_s: float = 15.0
    """How long an event may wait for Kafka before its client is told to try again: a broker's failover takes less."""

    retry_after_s: int = 1
    """When to try again after 429: what waits is gone by then, or the client is told so once more."""

    away_retry_after_s: int = 10
    """When to try again after 503: a new leader for a partition, or a broker that starts again, takes that long."""

    future_max_ms: int = 1_800_000
    """How far an event may be ahead of the clock. Brokers refuse one that is an hour ahead, with all others of its
    batch, which may be those of other clients."""

    window_ids_max: int = 1_000_000
    """Accepted events that are remembered: some 100 MB, and over three minutes at 5,000 a second."""

    window_age_s: int = 86_400
    """How long: clients that spool try again within a day."""

    restored_records_max: int = 100_000
    """Records of accepted events that are read at the start, the latest ones: a few seconds."""

    ids_per_record_max: int = 10_000
    """Accepted events that one record names: 350 KB."""

    clients_max: int = 10_000
    """Clients of one file."""

    reload_s: float = 2.0
    """How soon a changed file of clients counts. It is looked at, and read only if it has changed."""


INGEST_LIMITS = IngestLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardLimits:
    """Bounds of the forwarder."""

    receivers_max: int = 32
    """Receivers of one process. Each is a consumer of its own, with its own connections to the brokers."""

    acknowledgement_polls_max: int = 60
    """How often Splunk is asked in one wait whether an event is indexed."""

    acknowledgement_pause_s: float = 0.5
    """Between two such questions: with the polls above half a minute in all."""

    acknowledgement_waits_max: int = 7
    """Such waits before an event is sent again: with the pauses between, some five minutes, as Splunk advises."""

    acknowledgement_wait_s: float = 40.0
    """For all of them, slow answers included: a receiver that tries one alert for minutes passes for one that hangs."""


FORWARD_LIMITS = ForwardLimits()
