"""Bounds of what listens or connects: the HTTP tap, feeds, ingest, forwarding, the console, ``list-watch``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingLimits:
    """Bounds of ``list-watch``: what one server can cost, and what it cannot take from the others."""

    servers_max: int = 1_000  # Servers of one process; each may have a connection or a child process of its own
    listings_max: int = 64  # Listings in progress. One that hangs holds its place for ``listing_limit_s`` at most.
    listings_per_host_max: int = 4  # Listings in progress on one host, and of servers that are started here
    interval_default_s: float = 3_600.0  # Between two listings of a server that announces nothing
    interval_min_s: float = 1.0  # The shortest interval that may be configured
    interval_max_s: float = 7 * 86_400.0  # The longest one. Observations are kept a year by default.
    # The shortest time after which a server's own ``ttlMs`` has it listed again, unless the interval is shorter.
    ttl_min_s: float = 60.0
    # Between two listings for announced changes: a server may announce one after the other.
    announced_gap_s: float = 5.0
    # That gap doubles up to here while changes are announced without a pause: 8 MB a time would add up.
    announced_gap_max_s: float = 300.0
    retry_first_s: float = 5.0  # Pause after a failure; it doubles with each further one, up to the interval
    # One listing from connecting to its last page. Servers that ``npx`` or ``uvx`` fetches take a minute to start.
    listing_limit_s: float = 120.0
    # One answer. Lists take milliseconds; what comes first waits for the server's start as well.
    answer_limit_s: float = 30.0
    probe_limit_s: float = 10.0  # The answer to ``server/discover``, which servers of earlier revisions may ignore
    pages_max: int = 64  # Pages of one list. What goes on is published as incomplete.
    # One message: the largest record. A longer list cannot be published, and is published as unreadable.
    message_bytes_max: int = 8 * 1024 * 1024
    # What is read of one connection: eight of the largest lists. Then it is closed, and opened when next due.
    connection_bytes_max: int = 64 * 1024 * 1024
    # Messages read of one connection. Servers send a few hundred notifications on a busy day.
    connection_messages_max: int = 10_000
    credential_bytes_max: int = 64 * 1024  # One file of a credential. Access tokens with many groups have some 16 KB.
    # How long a server's process may take to end after its input was closed, and again after SIGTERM.
    stop_limit_s: float = 2.0


LISTING_LIMITS = ListingLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleLimits:
    """Bounds of ``console``."""

    # Before filling the store is tried again after a failure; each further failure in a row doubles it.
    filler_pause_first_s: float = 1.0
    filler_pause_max_s: float = 60.0  # The longest such pause; after a run that was longer, pauses start over
    # Questions that the store is asked at once. Each has a connection of its own and its pages in memory.
    threads: int = 4
    # Questions asked or waiting; further pages get 503. At the time limit of each, the last waits half a minute.
    questions_max: int = 32
    operator_questions_max: int = 8  # Those of one person who is signed in: a browser asks six at once
    # How long SQLite may work for one page: forty times what a search takes in a store of a million calls.
    question_limit_s: float = 4.0
    steps_between_looks: int = 10_000  # Steps of SQLite's machine between two looks at the clock: about a millisecond
    rows: int = 50  # Rows of a page: two or three screens
    few_rows: int = 10  # Rows of a table that is not what its page is about; a link leads to all of them
    trace_rows: int = 200  # Calls of one trace that are shown
    streams_max: int = 32  # Pages that are kept up to date at once, each with a connection; further ones are not
    operator_streams_max: int = 8  # Those of one person who is signed in; a browser keeps six
    store_fresh_s: float = 30.0  # How old the answer of the brokers may be by which the store is up to date
    look_every_s: float = 1.0  # Between two looks whether the store has changed, one for all pages
    # Between two signs of life on a connection: proxies close one that is silent for a minute.
    beat_every_s: float = 15.0
    form_bytes_max: int = 256 * 1024  # What a form may post: a decision on every row of a page, with long names
    form_fields_max: int = 1_000  # Fields of a form: a few for each row of a page
    # Alerts or tools that one form decides on: what a person can look through, and an address can hold.
    subjects_max: int = 50
    # The longest definition whose changes stand in the queue: some thirty times an ordinary one. Comparing two takes a
    # tenth of a second; longer ones stand on the page of their alert.
    review_definition_bytes_max: int = 64 * 1_024
    form_limit_s: float = 10.0  # How long a browser may take to send a form
    sessions_max: int = 1_000  # Sessions that are kept, a few hundred bytes each
    # Sessions of one operator: nobody can end those of others by signing in again and again.
    operator_sessions_max: int = 10
    session_idle_s: int = 3_600  # After how long without a page a session is over
    session_s: int = 12 * 3_600  # After how long a session is over however much it was used: a long shift
    sign_in_window_s: int = 900  # For how long failed attempts to sign in are counted
    # Of one name in that time, from one address or one browser that has signed it in before.
    user_attempts_max: int = 10
    source_attempts_max: int = 50  # From one address in that time: an office of people behind one who mistype
    # Of one name in that time, from all browsers that have not signed it in before: many addresses guess together.
    strangers_attempts_max: int = 100
    device_s: int = 90 * 24 * 3_600  # How long a browser keeps what shows that it has signed somebody in before
    password_chars_min: int = 12  # Of a new password: it is all there is between the network and the right to decide
    password_chars_max: int = 1_024  # Longer ones are refused unhashed
    hashing_threads: int = 2  # Passwords checked at once, each with 64 MiB
    hashing_max: int = 16  # Passwords checked or waiting; further attempts get 503. The last waits for half a second.
    # The costliest hash that is checked, KiB of memory times passes: some ten seconds.
    hashing_kib_passes_max: int = 16 * 1024 * 1024
    provider_limit_s: float = 10.0  # How long the provider of identities may take for one answer
    provider_bytes_max: int = 256 * 1024  # What it may answer; its keys have a few kilobytes
    provider_keep_s: int = 3_600  # After how long its addresses and keys are read again
    provider_pause_s: int = 5  # After how long one that failed is asked again
    provider_again_s: int = 30  # Between two looks for a key that is not known: nobody can make the console flood it
    pending_s: int = 600  # How long somebody may be with the provider
    clock_skew_s: int = 60  # What its clock and ours may differ
    # Characters of a name that a proxy or provider gives; authors of decisions have few more.
    identity_chars_max: int = 200
    # Forms whose decisions are being published, or wait for their turn; further ones get 503.
    decisions_waiting_max: int = 16
    # How long Kafka may take to acknowledge the decisions of a form while somebody looks at a blank page.
    decision_limit_s: float = 15.0


CONSOLE_LIMITS = ConsoleLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Bounds of the HTTP tap."""

    # One header field, and the request line. Access tokens with many groups have some 16 KB.
    header_bytes_max: int = 64 * 1024
    # Requests in progress, of all servers together; every open stream is one. Each holds two sockets and some buffers
    # of 64 KB. Further ones are refused.
    exchanges_max: int = 4_096
    # Connections of clients. Where there are more, the longest idle one makes room: twice as many as requests, so that
    # there is one.
    clients_max: int = 8_192
    # How long a connection may stand without a whole request, or its next one: longer than proxies keep theirs.
    idle_client_s: float = 75.0
    # Sessions, and clients without one, that are followed per server. Each remembers the lists that it was given, some
    # hundred kilobytes at most for real servers. Of those without open calls the one that rested longest is forgotten
    # first.
    connections_max: int = 2_000
    # What may wait to be inspected: two of the longest messages. No request waits for the observer.
    backlog_bytes_max: int = 64 * 1024 * 1024
    # What of one server may wait so, where a tap has several: one of the longest messages, and more. A server whose
    # messages take long to inspect must not have those of others pass unobserved.
    server_backlog_bytes_max: int = 48 * 1024 * 1024
    # Parts of messages of one server that wait for their ends, and bodies to be ruled on: eight of the longest. What
    # goes beyond is not read, or, if it is to be ruled on, refused.
    kept_bytes_max: int = 256 * 1024 * 1024
    # How long what passed waits to be inspected together with what comes next. Records are that much later, and the two
    # threads take turns less often, which costs more than inspecting a small call.
    inspect_pause_s: float = 0.01
    exchange_cost_bytes: int = 4_096  # What an exchange counts for in the backlog beside its bodies
    # Characters of an access token that is read for its claims; longer ones are opaque.
    token_chars_max: int = 64 * 1024
    connect_limit_s: float = 10.0  # How long connecting to a server may take, TLS included
    # How long a server may take to begin its answer. Tools may work for minutes before they say anything.
    answer_limit_s: float = 300.0
    body_pause_limit_s: float = 60.0  # How long a client may pause within the body of its request
    # How long a connection to a server is kept for the next request: less than the 5 s after which common servers close
    # theirs, so that no request meets a connection that is about to go.
    idle_connection_s: float = 3.0
    # How long requests in progress may take to end when the tap is stopped; open streams are cut.
    stop_limit_s: float = 2.0
    upstreams_max: int = 256  # Servers of one tap


HTTP_LIMITS = HttpLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedLimits:
    """Bounds of a feed, which works within its gateway's process."""

    # Clients that are followed, by server. Each remembers the lists that it was given, some hundred kilobytes at most
    # for real servers. Of those without open calls the one that rested longest is forgotten first.
    views_max: int = 2_000
    # The largest list, arguments or result that are read: a record of the snapshot topic. The gateway waits while they
    # are encoded and hashed. Larger ones are noted, never hashed.
    message_bytes_max: int = 8 * 1024 * 1024
    # A cursor that goes with each server's part of a list of several: it is copied and encoded for every one of them.
    # Of a longer one it is known only that there is one.
    cursor_chars_max: int = 8_192
    # Calls of one gateway whose answers may be outstanding, where the answer comes as a request of its own.
    calls_max: int = 10_000
    # How long their answers are waited for, as long as a tap waits for the beginning of one.
    answer_limit_s: float = 300.0
    # One request of a gateway that asks over gRPC: a message, and what goes with it.
    request_bytes_max: int = 16 * 1_048_576
    # Such requests at a time, with those that wait for a thread; further ones are refused at once. A gigabyte, if all
    # were of the largest size.
    requests_max: int = 64
    threads_max: int = 8  # Threads that answer them. Decisions never wait; parsing and hashing hold the interpreter.


FEED_LIMITS = FeedLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestLimits:
    """Bounds of ``ingest``."""

    # One request, also once it is decompressed: two of the largest records, or a thousand calls of 16 KB.
    body_bytes_max: int = 16 * 1024 * 1024
    events_max: int = 1_000  # Events of one batch: what a client has to send again at most
    # Requests that are read, and events that wait for Kafka, of all clients together. Further ones get 429.
    pending_bytes_max: int = 128 * 1024 * 1024
    # The same of one client: a quarter, so that one alone cannot keep the others out.
    client_bytes_max: int = 32 * 1024 * 1024
    requests_max: int = 1_024  # Requests in progress, each with a socket and a buffer of 64 KB. Further ones get 429.
    read_limit_s: float = 60.0  # How long a client may take for the body of a request
    # How long an event may wait for Kafka before its client is told to try again: a broker's failover takes less.
    ack_limit_s: float = 15.0
    # When to try again after 429: what waits is gone by then, or the client is told so once more.
    retry_after_s: int = 1
    # When to try again after 503: a new leader for a partition, or a broker that starts again, takes that long.
    away_retry_after_s: int = 10
    # How far an event may be ahead of the clock. Brokers refuse one that is an hour ahead, with all others of its
    # batch, which may be those of other clients.
    future_max_ms: int = 1_800_000
    # Accepted events that are remembered: some 100 MB, and over three minutes at 5,000 a second.
    window_ids_max: int = 1_000_000
    window_age_s: int = 86_400  # How long: clients that spool try again within a day
    # Records of accepted events that are read at the start, the latest ones: a few seconds.
    restored_records_max: int = 100_000
    ids_per_record_max: int = 10_000  # Accepted events that one record names: 350 KB
    clients_max: int = 10_000  # Clients of one file
    # How soon a changed file of clients counts. It is looked at, and read only if it has changed.
    reload_s: float = 2.0


INGEST_LIMITS = IngestLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardLimits:
    """Bounds of the forwarder."""

    # Receivers of one process. Each is a consumer of its own, with its own connections to the brokers.
    receivers_max: int = 32
    acknowledgement_polls_max: int = 60  # How often Splunk is asked in one wait whether an event is indexed
    acknowledgement_pause_s: float = 0.5  # Between two such questions: with the polls above half a minute in all
    # Such waits before an event is sent again: with the pauses between, some five minutes, as Splunk advises.
    acknowledgement_waits_max: int = 7
    # For all of them, slow answers included: a receiver that tries one alert for minutes passes for one that hangs.
    acknowledgement_wait_s: float = 40.0


FORWARD_LIMITS = ForwardLimits()
