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

    containers_max: int = 262_144
    """Objects and arrays of one JSON text. An empty one takes three bytes there and over fifty in memory; a list
    of 8 MiB from real servers has half as many."""

    integer_digits_max: int = 309
    """Digits of one integer: the largest double has 309."""

    tools_max: int = 5_000
    """Tools in one snapshot. A full fingerprint costs under a millisecond each, so a hostile list costs
    seconds at most."""

    offers_kept_bytes_max: int = 24 * 1024 * 1024
    """Definitions of the latest distinct lists that are kept decoded, so that a repeated list costs little: a
    thousand real ones. Decoded they take some five times as much."""

    items_max: int = 5_000
    """Prompts, or resource templates, of one snapshot that are compared: as many as tools. A list with more is
    compared as one that is not complete."""

    instructions_chars_max: int = 262_144
    """Characters of a server's instructions: as many as are searched of one definition. Real ones have up to 8,000."""

    tool_fields_max: int = 64
    """Top-level fields of one tool. Each gets a digest of its own; real tools have ten at most."""

    field_name_chars_max: int = 128
    """Characters of the name of such a field. The names of changed fields stand in findings and alerts."""

    definition_bytes_max: int = 4 * 1024 * 1024
    """One tool definition in canonical form, which can be longer than what was received (``1e20``). Its record
    holds it and its projection, and must fit into one Kafka message."""

    change_value_chars_max: int = 1_024
    """Characters of a value before or after one change, as text or JSON. Descriptions of real tools have up to
    3 KB; what was changed is read in the definition topic, a change only shows what it is about."""

    changes_max: int = 1_000
    """Changes reported of one definition; real upgrades have some thirty. More are reported as one."""

    work_units_max: int = 16_000_000
    """Units of work (``work``) that one record may cost beyond decoding and fingerprints: under two seconds
    of one core. A gateway that offers 2,000 new tools of 1 KB each stays within it."""

    definition_work_units_max: int = 2_000_000
    """Units of work that one definition may cost, of those of its record: a hostile tool must not use up what its
    neighbours in the list need."""

    path_chars_max: int = 1_024
    """Characters of the path of one change, or of one sign. Paths of real changes have under 200; names of a
    hostile schema would make each path as long as the schema."""

    allowance_units_per_s: int = 1_000_000
    """Units of work that the lists of one server may cost per second of log time: a tenth of a core, so that nine
    more servers of its partition can do the same. A change that was analysed before is free."""

    allowance_burst_units: int = 32_000_000
    """Units that a server may save up: two lists that each use up the budget of a record, in four seconds."""

    ration_floor_units: int = 20_000
    """Units for the analysis of a list that finds its server's allowance used up: two milliseconds."""

    rationed_changes_max: int = 5
    """Changed definitions that such a list reports one by one beside those whose new text has signs. Further ones,
    and what came and went, are counted: each finding is written, read, and may begin an alert."""

    analysed_changes_max: int = 64
    """Changes that are remembered as analysed per server: roll-outs that go on at once. One takes 32 digits."""

    analysed_pairs_max: int = 8_192
    """Definitions of these changes together: fewer than ``analysis_answers_max``, so that what is not charged
    again need not be worked out again either."""

    short_pages_max: int = 4_096
    """Texts of a few words that are kept with what was found out about them, in one process: those of some 50
    servers. One takes some 2 KB."""

    long_pages_max: int = 512
    """Longer texts that are kept so: those of the definitions at hand."""

    long_pages_chars_max: int = 65_536
    """Characters that these have together, as they stand and as they are seen. With all that is kept of it, a
    character takes some 50 bytes, and up to 200 where every other one is a word."""

    analysis_answers_max: int = 49_152
    """Answers kept about pairs of definitions, in one process: three for each of twice ``analysed_pairs_max``."""

    analysis_answers_bytes_max: int = 64 * 1024 * 1024
    """What these take together in memory; a usual answer takes less than 1 KB."""

    rename_pairs_max: int = 10_000
    """Pairs of removed and added tools with one schema whose descriptions are compared. Beyond that only equal
    descriptions make a rename."""

    rename_description_chars_max: int = 8_192
    """Characters of a description whose words are compared to find renamed tools; of a longer one all words must
    be the same. Descriptions of real tools have up to 3,000."""

    introduced_chars_max: int = 262_144
    """Characters of new text that are searched in one definition: with plain text, as much as its share of work
    suffices for. A whole real server has some 7,000; more than this is a sign by itself."""

    decoding_depth_max: int = 4
    """Disguises undone one inside another. Attacks on record have two; who uses more is reported for it."""

    decoded_chars_max: int = 16_384
    """Characters of decoded text that are read of one text, besides four for each of its own. What says more than
    that is reported as oversized."""

    unpacked_bytes_max: int = 16_384
    """Bytes taken out of one compressed blob, which may hold a thousand times as many as it takes. One that holds more
    is reported as oversized."""

    indicators_max: int = 256
    """Indicators reported of one definition, the worst ones; real attacks bring ten. More are one by themselves."""

    tool_name_chars_max: int = 256
    """Characters of a tool's name that are looked for in other tools' texts; MCP asks for 128 at most."""

    tool_name_words_max: int = 16
    """Words of a tool's name that are looked for in other tools' texts. Of a longer one the beginning counts."""

    drawn_name_chars_max: int = 1_024
    """Characters of a tool name, decomposed, that are compared as readers see them; MCP asks for 128 at most. One
    character can become eighteen: without a bound, a name of a megabyte would take seconds."""
    skeleton_chars_max: int = 256
    """Characters of the skeleton of a tool name, which is a key; a longer one is replaced by its digest."""

    name_claims_max: int = 256
    """Definitions remembered under look-alike names, over all servers: 90 KB of state. Further ones are compared
    once, counted as left out, and not remembered."""

    name_sketch_max: int = 16
    """Digests of names in the sketch of a server's catalogue, 8 characters each. Up to as many names are compared
    exactly; of more the share is estimated, within a quarter of all at worst in 19 of 20 cases."""

    privileged_named_max: int = 20
    """Privileged tools that the inventory of a first list names: 20 KB with the longest names. All are counted."""

    alert_parts_max: int = 16
    """Findings of other kinds that one alert about a definition takes in: 8 KB of state. Further ones are alerts of
    their own."""

    alert_observers_max: int = 1_000
    """Observers that an alert counts one by one; further ones are counted together."""

    alert_origins_max: int = 64
    """Latest offsets that an alert remembers per input partition, to count no record twice. What is found late,
    when a control record changes the past, is counted as long as it is among as many."""

    alerts_per_record_max: int = 20
    """Alerts of one severity that one record begins; the others are folded into one. Real upgrades change some
    fourteen tools: what a person reads one by one in a morning."""

    alert_records_max: int = 8
    """Records of one server whose alerts are counted. What one record leads to stands together in the log; that of
    eight observers may be mixed."""

    folded_named_max: int = 50
    """Members that a folded alert names, most severe first: 60 KB with the longest names. All of them are counted, and
    all stand in the finding topic."""

    resolution_uids_max: int = 1_000
    """Alerts ended by one record: 68 KB. A list of 5,000 tools that all change ends more than one record holds."""

    alerts_per_tick_max: int = 2_000
    """Alerts that are written for one tick: a second's work. The rest waits for the next tick, so that a worker
    that catches up after an outage still answers its brokers."""

    repeats_made_up_max: int = 100
    """Repetitions of one alert that are made up for at once, after an outage; of more only the last is written."""

    identifier_chars_max: int = 1_024
    """Characters of one identifier (server, observer, tool, snapshot, call). They become Kafka keys and
    alert fields."""

    prefixes_max: int = 256
    """Rules for the prefixes of one gateway, about one a server."""

    prefix_chars_max: int = 256
    """Characters that a gateway puts before a tool's name: the name of a server, and a separator."""

    span_attributes_max: int = 256
    """Attributes of a span: OpenTelemetry's SDKs keep 128 unless configured otherwise."""

    time_max_s: int = 4_102_444_800
    """Latest event time, seconds since the epoch: the year 2100. A clock that says more is broken."""

    future_max_ms: int = 24 * 3_600 * 1_000
    """How far an event time may lie after its record's own timestamp: a day covers any time-zone mistake."""

    late_limit_ms: int = 60 * 1_000
    """How far before the latest event time of its server a list may lie and be no finding: proxies' clocks differ
    by seconds, and their batches wait for as long."""

    incomplete_lists_max: int = 20
    """Lists in a row that are not complete before that is a finding: a client that pages through a list, and is
    interrupted now and then, completes one in as many sessions."""

    list_ttl_ms_max: int = 86_400_000
    """How long a server may have its list cached before that is a finding: a day. Real servers say minutes."""

    rejections_max: int = 64
    """Refused records remembered per server and observer, and as many that name no observer; beyond that the
    oldest two become one."""

    unlisted_observers_max: int = 1_000
    """Observers without a list remembered per server, whose records were refused or who were told of a change. Of
    more, the earliest become one, and from its time on no observer without a list is bound to what others saw."""

    announced_limit_ms: int = 60 * 1_000
    """How long calls may go on after an announced change before it is a finding that no list follows: clients that
    list again do so within seconds. A list that is announced to be out of date sooner is no answer."""

    announcements_max: int = 64
    """Announced changes in a row, without a list that lasts, that are a finding however fast they come."""

    open_call_limit_s: int = 3_600
    """How long a proxy waits for the next message of a call: an answer, the end of its task, the input it asked for.
    The record of a call comes with its outcome, so this bounds for how long a server can put off an alert."""

    held_calls_max: int = 1_000
    """Calls of one connection that wait for a task or for input, at some two kilobytes each. Agents have a few; the
    record of the one that waits for longest is published when there are more."""

    lists_on_the_way_max: int = 64
    """Lists of a connection that its client need not have yet. A client asks for one at a time; beyond, the oldest
    counts as given."""

    call_inputs_max: int = 64
    """Requests of a server to its client that are counted and hashed in one call. Clients of the SDK give up after ten
    rounds of input."""

    signature_chars_max: int = 1_024
    """Characters of one signature. A P-256 signature has 96 in base64."""

    discoveries_max: int = 64
    """Distinct key documents remembered per server and domain; real domains change theirs once in years."""

    discovery_bytes_max: int = 256 * 1024
    """One SchemaPin discovery document. A key and a few fields take under a kilobyte; the rest is room for over
    three thousand revoked keys."""
    version_chars_max: int = 64
    """Characters of a semantic version. Handshake's recorder takes as many; real versions have ten."""

    contract_text_chars_max: int = 256
    """Characters of one text in a tool's ``_meta.handshake``: what Handshake takes for tool ids and capabilities.
    A server writes it, so it is bounded before it is shown."""

    capabilities_max: int = 64
    """Required capabilities of one tool. Each stands in reports; a tool that needs more asks for everything."""

    htc_payload_bytes_max: int = 32 * 1_024
    """Arguments, and results, of one HTC-1.0 envelope in canonical form: the cap of that contract."""

    htc_envelope_bytes_max: int = 128 * 1_024
    """One HTC-1.0 envelope as received: its payload at four times the cap, for escapes and white space, or with
    details of an error and lists of resources beside it."""

    schema_bytes_max: int = 64 * 1_024
    """One schema in canonical form, where it is held against its dialect: that can cost time in the square of its
    length. The largest of the captures has 1,137 bytes."""

    answers_max: int = 100_000
    """Answers about servers that one process keeps: what was in force, and how it stood to its pins. At most some 5 KB
    each, half a gigabyte together. When there is no room for another, all are dropped."""

    timeline_entries_max: int = 512
    """Observations kept per server and observer. Older repeats are folded first, see ``registry.timeline``."""

    shared_facts_bytes_max: int = 32 * 1024 * 1024
    """Facts of definitions and catalogues that a join remembers, by their length, so that equal ones on other servers
    are kept once: some twenty thousand real definitions."""

    shared_texts_max: int = 256 * 1024
    """Ids, digests and names of topics remembered while facts are read, so that equal ones are one object: those of the
    largest fleet that was measured. Where there are more, all are forgotten."""

    lists_merged_max: int = 64
    """Distinct lists in a row, none of them complete, that add up to what an observer is offered: 64 pages of one
    list. What only an older one names is offered no more."""

    former_tools_max: int = 1_000
    """Names of one server in no list that is kept any more, whose last definition is: what comes back is compared
    with it. Real servers drop some ten tools in a year."""

    former_tools_bytes_max: int = 8 * 1024 * 1024
    """Those definitions, packed: two of the largest, or several thousand real ones."""

    server_definitions_bytes_max: int = 64 * 1024 * 1024
    """Definitions kept of one server, packed: twenty thousand real ones, or the eight largest lists. A server with
    new definitions in every list loses its older observations sooner; the two latest always stay."""

    agent_buffered_max: int = 20_000
    """Records of one partition that wait until every input of the agents was read as far as their time. When there are
    more, the earliest go on without waiting, and a finding says so."""

    agent_buffered_bytes_max: int = 64 * 1024 * 1024
    """Those records together. Evidence has some 2 KB; one finding can have megabytes."""

    agent_disorder_ms: int = 60 * 1_000
    """How far the event times within one partition of evidence may go back: as ``late_limit_ms``. One that was read
    further than that beyond a record's time holds it up no longer."""

    agent_keys_max: int = 100_000
    """Keys of one partition that agents keep state for. Beyond it the states that rested longest are dropped."""

    agent_state_bytes_max: int = 64 * 1024
    """State of one key as JSON. It is written to Kafka whenever it changes."""

    agent_findings_max: int = 16
    """Findings that one record may lead to in one agent: one says enough, and a person reads them."""

    agent_references_max: int = 64
    """Records that one finding of an agent refers to."""

    agent_key_parts_max: int = 8
    """Texts that one key of an agent consists of, each an identifier: server, tool, actor, trace."""

    agent_window_items_max: int = 256
    """Items that one window remembers, the latest ones; with names of 64 characters they fit into a state."""


DEFAULT_LIMITS = Limits()

PIN_FILE_LIMITS = Limits(record_bytes_max=10 * 1024 * 1024)
"""One file of pins, or one lockfile: twenty thousand pins of the longest kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """Bounds on one evidence bundle: those of Assay's own verifier, which refuses what goes beyond."""

    bundle_bytes_max: int = 100 * 1024 * 1024
    """The file, compressed."""

    decoded_bytes_max: int = 1024 * 1024 * 1024
    """The file, decompressed: what a bomb may cost."""

    manifest_bytes_max: int = 10 * 1024 * 1024
    """``manifest.json``. Ours have under a kilobyte; it is the only part that is read whole."""

    events_bytes_max: int = 500 * 1024 * 1024
    """``events.ndjson``. A hundred thousand records of ours have some 120 MB."""

    events_max: int = 100_000
    """Events of one bundle."""

    line_bytes_max: int = 1024 * 1024
    """One event with its line feed. Records of ours have one or two kilobytes."""

    depth_max: int = 64
    """Nesting of JSON containers in one event, or in the manifest."""


BUNDLE_LIMITS = BundleLimits()

ARCHIVE_DECODED_BYTES_MAX = 64 * 1024 * 1024 * 1024
"""One archive of lines, decompressed: some fifty million records. Archives are read line by line, so this bounds
time, not memory."""

LINE_BYTES_MAX = 20 * 1024 * 1024
"""One line of an archive. The largest record of any topic has 9 MiB (an input record and the headers of its
rejection); as a record line it takes at most twice that, in escapes or base64, and its place in the log."""

ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024
"""Memory that a zstd frame may ask for: what the ``zstd`` tool itself reads without being asked to take more."""

PROGRESS_FILE_BYTES_MAX = 64 * 1024 * 1024
"""The progress file of a replay. It has some hundred bytes for each log and alert that it goes on from."""

HELD_BYTES_MAX = 32 * 1024 * 1024
"""Values of records that a command keeps in memory in one place while they wait for others; more go to a
temporary file, or are given on early. Four of the largest records."""

ARCHIVE_LOGS_MAX = 100_000
"""Logs (partitions of topics) in the archives of one command, each with some memory of its own. The largest
deployment that the settings allow has 30,000 partitions of input."""

EVIDENCE_LATENCY_MAX_S = 3_600.0
"""What a longer latency counts as: a publisher whose clock is years behind must not outweigh all others in the sum."""

UNREVIEWED_AGE_MAX_S = 30 * 24 * 3_600.0
"""What a longer wait for a review counts as: event times are publishers', and one of 1970 is no alert of 1970."""

OBSERVER_ALIVE_S = 900
"""An observer counts as alive for so long after it was last heard of: agents call in bursts, with pauses between."""

OBSERVERS_COUNTED_MAX = 100_000
"""Observers that a worker counts as alive: publishers choose the names. More are alive than the metric says then."""

COVERAGE_NAMES_MAX = 100_000
"""Servers, and observers, that a coverage report tells apart: the largest fleet that was measured. Whoever may publish
can make up any number of names; the rest is counted together, and the report says so."""

AGENT_REPLAY_BUFFERED_MAX = 1_000_000
"""Records that wait in a replay of agents: a minute of some ten thousand calls a second. A replay is never ahead of the
event times that it reads, so it waits for ``agent_disorder_ms``, where a worker waits for progress."""

AGENT_REPLAY_BUFFERED_BYTES_MAX = 2 * 1024 * 1024 * 1024
"""Those records together, at 2 KB each."""


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
    hundred kilobytes at most for real servers. The one that rested longest is forgotten first."""

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

    inspector_pause_min_s: float = 1.0
    """The first pause before the process that inspects is started again; it doubles."""

    inspector_pause_max_s: float = 60.0
    """The longest such pause."""

    inspector_start_limit_s: float = 120.0
    """How long that process may take to open its sink; brokers that do not answer are given up much earlier."""

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
    for real servers. The one that rested longest is forgotten first."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolLimits:
    """Bounds of a publisher's spool."""

    segment_bytes_max: int = 4 * 1024 * 1024
    """A segment that has grown to this gets no more, so that what is delivered leaves the disk; one record may still
    take it to twice that. It is also what is read at once."""

    processes_max: int = 64
    """Processes that share a folder, each with a spool of its own in it."""

    interval_s: float = 0.25
    """How often what is queued goes to the spool while the brokers are away: what a kill may lose."""


SPOOL_LIMITS = SpoolLimits()


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


STORE_CACHE_KIB = 64 * 1_024
"""Pages of the store that one connection keeps in memory: the inner pages of every index over a million calls."""

STORE_WAIT_MS = 10_000
"""How long a reader of the store waits for a lock. The WAL has none in its way but while it is made or recovered."""

STORE_PAGE_ROWS_MAX = 1_000
"""Rows of one answer of the store: more than a screen, and a bound on what one question takes."""

STORE_LOG_PAGES = 16_384
"""Pages of the store's write-ahead log before they go to their places: 64 MiB, so that a page that changes with every
batch is written there once for several of them."""

STORE_NAMES_KEPT_MAX = 65_536
"""Names and subjects whose number in the store a process remembers; a name costs some 200 bytes."""

STORE_BATCH_RECORDS = 10_000
"""Records that go into the store in one transaction: fewer cost more each, and what a kill undoes is read again."""

STORE_ERA_RECORDS = 32_768
"""Records of evidence whose own digests are kept in one part of their table: a batch changes that part only, and a
digest is looked for in each part, 31 for a million records. Part of the store's format."""

STORE_DROP_ROWS = 10_000
"""Rows of evidence dropped in one transaction, so that filling and reading go on in between."""

STORE_LISTS_PER_SERVER_MAX = 1_000
"""Lists of one server that the store keeps, but for those in force: a server that changes its list with every question
fills a store otherwise, and drives the evidence of others out."""

STORE_LISTED_PER_SERVER_MAX = 50_000
"""Tools in all the lists of one server that the store keeps, those in force included: ten lists of the largest size.
Its definitions, names and verdicts follow from them."""

STORE_ALERTS_PER_SERVER_MAX = 2_000
"""Alerts of one server that the store keeps, closed ones going first: more than anybody reviews."""

STORE_ALERT_HEAD = 5
"""First records of an alert, which the store keeps in any case: how it began."""

STORE_ALERT_RECORDS_MAX = 20
"""Records of one alert that the store keeps, the first and the latest ones: what a history shows."""

STORE_ALERT_DIGESTS_MAX = 200
"""Digests by which one alert is found: an alert that goes on for ever may name a new one each time."""

STORE_CHANGES_PER_SERVER_MAX = 1_000
"""Changes of one server that nobody decided, as of keys that its domain publishes: it can change them at will."""

STORE_AHEAD_US = 24 * 3_600 * 1_000_000
"""Evidence dated further ahead of the clock than this has a broken or a lying one: where there is no room, it is
dropped first, since by its date it would never be."""

STORE_CANDIDATES_MAX = 10
"""Digests that are listed where a prefix fits several: more than a screen helps nobody choose."""

STORE_PLACES_MAX = 1_000
"""Places of one digest that are listed."""

STORE_SUBJECTS_MERGED_MAX = 64
"""Kinds of calls that have a digest in common whose calls are looked up one by one and merged; of more, the calls are
read by time, since most of them have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleLimits:
    """Bounds of ``console``."""

    filler_pause_first_s: float = 1.0
    """Before a filling process that ended is started again; each further failure in a row doubles it."""

    filler_pause_max_s: float = 60.0
    """The longest such pause; one that ran for longer begins with the first again."""

    threads: int = 4
    """Questions that the store is asked at once. Each has a connection of its own and its pages in memory."""

    questions_max: int = 32
    """Questions asked or waiting; further pages get 503. At the time limit of each, the last waits half a minute."""

    operator_questions_max: int = 8
    """Those of one person who is signed in: a browser asks six at once."""

    question_limit_s: float = 4.0
    """How long SQLite may work for one page: forty times what a search takes in a store of a million calls."""

    steps_between_looks: int = 10_000
    """Steps of SQLite's machine between two looks at the clock: about a millisecond."""

    rows: int = 50
    """Rows of a page: two or three screens."""

    few_rows: int = 10
    """Rows of a table that is not what its page is about; a link leads to all of them."""

    trace_rows: int = 200
    """Calls of one trace that are shown."""

    streams_max: int = 32
    """Pages that are kept up to date at once, each with a connection; further ones are not."""

    operator_streams_max: int = 8
    """Those of one person who is signed in; a browser keeps six."""

    look_every_s: float = 1.0
    """Between two looks whether the store has changed, one for all pages."""

    beat_every_s: float = 15.0
    """Between two signs of life on a connection: proxies close one that is silent for a minute."""

    form_bytes_max: int = 256 * 1024
    """What a form may post: a decision on every row of a page, with long names."""

    form_fields_max: int = 1_000
    """Fields of a form: a few for each row of a page."""

    subjects_max: int = 50
    """Alerts or tools that one form decides on: what a person can look through, and an address can hold."""

    review_definition_bytes_max: int = 64 * 1_024
    """The longest definition whose changes stand in the queue: some thirty times an ordinary one. Comparing two takes a
    tenth of a second; longer ones stand on the page of their alert."""

    form_limit_s: float = 10.0
    """How long a browser may take to send a form."""

    sessions_max: int = 1_000
    """Sessions that are kept, a few hundred bytes each."""

    operator_sessions_max: int = 10
    """Sessions of one operator: nobody can end those of others by signing in again and again."""

    session_idle_s: int = 3_600
    """After how long without a page a session is over."""

    session_s: int = 12 * 3_600
    """After how long a session is over however much it was used: a long shift."""

    sign_in_window_s: int = 900
    """For how long failed attempts to sign in are counted."""

    user_attempts_max: int = 10
    """Of one name in that time. Whoever knows a name can keep it out for as long."""

    source_attempts_max: int = 50
    """From one address in that time: an office of people behind one who mistype."""

    password_chars_min: int = 12
    """Of a new password: it is all there is between the network and the right to decide."""

    password_chars_max: int = 1_024
    """Longer ones are refused unhashed."""

    hashing_threads: int = 2
    """Passwords checked at once, each with 64 MiB."""

    hashing_max: int = 16
    """Passwords checked or waiting; further attempts get 503. The last waits for half a second."""

    hashing_kib_passes_max: int = 16 * 1024 * 1024
    """The costliest hash that is checked, KiB of memory times passes: some ten seconds."""

    provider_limit_s: float = 10.0
    """How long the provider of identities may take for one answer."""

    provider_bytes_max: int = 256 * 1024
    """What it may answer; its keys have a few kilobytes."""

    provider_keep_s: int = 3_600
    """After how long its addresses and keys are read again."""

    provider_pause_s: int = 5
    """After how long one that failed is asked again."""

    provider_again_s: int = 30
    """Between two looks for a key that is not known: nobody can make the console flood it."""

    pending_s: int = 600
    """How long somebody may be with the provider."""

    clock_skew_s: int = 60
    """What its clock and ours may differ."""

    identity_chars_max: int = 200
    """Characters of a name that a proxy or provider gives; authors of decisions have few more."""

    decisions_waiting_max: int = 16
    """Forms whose decisions are being published, or wait for their turn; further ones get 503."""

    decision_limit_s: float = 15.0
    """How long Kafka may take to acknowledge the decisions of a form while somebody looks at a blank page."""


CONSOLE_LIMITS = ConsoleLimits()
