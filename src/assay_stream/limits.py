"""Every bound of the system, with its unit in its name and its reason beside it."""

from __future__ import annotations

from dataclasses import dataclass

# What a longer latency counts as: a publisher whose clock is years behind must not outweigh all others in the sum.
EVIDENCE_LATENCY_MAX_S = 3_600.0

# What a longer wait for a review counts as: event times are publishers', and one of 1970 is no alert of 1970.
UNREVIEWED_AGE_MAX_S = 30 * 24 * 3_600.0

# An observer counts as alive for so long after it was last heard of: agents call in bursts, with pauses between.
OBSERVER_ALIVE_S = 900

# Observers that a worker counts as alive: publishers choose the names. More are alive than the metric says then.
OBSERVERS_COUNTED_MAX = 100_000

# Servers, and observers, that a coverage report tells apart: the largest fleet that was measured. Whoever may publish
# can make up any number of names; the rest is counted together, and the report says so.
COVERAGE_NAMES_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what is accepted, analysed, kept and published."""

    # What the analysis of a list may cost.

    # Characters of a value before or after one change, as text or JSON. Descriptions of real tools have up to 3 KB;
    # what was changed is read in the definition topic, a change only shows what it is about.
    change_value_chars_max: int = 1_024
    # Changes reported of one definition; real upgrades have some thirty. More are reported as one.
    changes_max: int = 1_000
    # Units of work (``work``) that one record may cost beyond decoding and fingerprints: under two seconds of one core.
    # A gateway that offers 2,000 new tools of 1 KB each stays within it.
    work_units_max: int = 16_000_000
    # Units of work that one definition may cost, of those of its record: a hostile tool must not use up what its
    # neighbours in the list need. One public tool takes 3.3 million, and is high for not being searched in full.
    definition_work_units_max: int = 2_000_000
    # Characters of the path of one change, or of one sign. Paths of real changes have under 200; names of a hostile
    # schema would make each path as long as the schema.
    path_chars_max: int = 1_024
    # Bytes of the indicators of one finding, of those carried over, and of its changes: mostly their paths. Real ones
    # have under 1,400; hundreds of a hostile one could be long, in a finding and in its alert again.
    finding_rows_bytes_max: int = 4_096
    # Units of work that the lists of one server may cost per second of log time: a tenth of a core, so that nine more
    # servers of its partition can do the same. A change that was analysed before is free.
    allowance_units_per_s: int = 1_000_000
    # Units that a server may save up: two lists that each use up the budget of a record, in four seconds.
    allowance_burst_units: int = 32_000_000
    # Units for the analysis of a list that finds its server's allowance used up: two milliseconds.
    ration_floor_units: int = 20_000
    # Changed definitions that such a list reports one by one beside those whose new text has signs. Further ones, and
    # what came and went, are counted: each finding is written, read, and may begin an alert.
    rationed_changes_max: int = 5
    # Changes that are remembered as analysed per server: roll-outs that go on at once. One takes 32 digits.
    analysed_changes_max: int = 64
    # Definitions of these changes together: fewer than ``analysis_answers_max``, so that what is not charged again need
    # not be worked out again either.
    analysed_pairs_max: int = 8_192
    # Texts of a few words that are kept with what was found out about them, in one process: those of some 50 servers.
    # One takes some 2 KB.
    short_pages_max: int = 4_096
    long_pages_max: int = 512  # Longer texts that are kept so: those of the definitions at hand
    # Characters that these have together, as they stand and as they are seen. With all that is kept of it, a character
    # takes some 50 bytes, and up to 200 where every other one is a word.
    long_pages_chars_max: int = 65_536
    # Answers kept about pairs of definitions, in one process: three for each of twice ``analysed_pairs_max``.
    analysis_answers_max: int = 49_152
    # What these take together in memory; a usual answer takes less than 1 KB.
    analysis_answers_bytes_max: int = 64 * 1024 * 1024
    # Indexes of the names in a list that are kept, and the names in all of them: some 4 KB each.
    name_indexes_max: int = 256
    indexed_names_max: int = 4_096
    # Pairs of removed and added tools with one schema whose descriptions are compared. Beyond that only equal
    # descriptions make a rename.
    rename_pairs_max: int = 10_000
    # Characters of a description whose words are compared to find renamed tools; of a longer one all words must be the
    # same. Descriptions of real tools have up to 3,000.
    rename_description_chars_max: int = 8_192
    # Characters of new text that are searched in one definition: with plain text, as much as its share of work suffices
    # for. A whole real server has some 7,000; more than this is a sign by itself.
    introduced_chars_max: int = 262_144
    # Disguises undone one inside another. Attacks on record have two; who uses more is reported for it.
    decoding_depth_max: int = 4
    # Characters of decoded text that are read of one text, besides four for each of its own. What says more than that
    # is reported as oversized.
    decoded_chars_max: int = 16_384
    # Bytes taken out of one compressed blob, which may hold a thousand times as many as it takes. One that holds more
    # is reported as oversized.
    unpacked_bytes_max: int = 16_384
    # Indicators reported of one definition, the worst ones; real attacks bring ten. More are one by themselves.
    indicators_max: int = 256
    # Characters of a tool's name that are looked for in other tools' texts; MCP asks for 128 at most.
    tool_name_chars_max: int = 256
    # Words of a tool's name that are looked for in other tools' texts. Of a longer one the beginning counts.
    tool_name_words_max: int = 16
    # Characters of a tool name, decomposed, that are compared as readers see them; MCP asks for 128 at most. One
    # character can become eighteen: without a bound, a name of a megabyte would take seconds.
    drawn_name_chars_max: int = 1_024
    # Characters of the skeleton of a tool name, which is a key; a longer one is replaced by its digest.
    skeleton_chars_max: int = 256
    # Definitions remembered under look-alike names, over all servers: 90 KB of state. Further ones are compared once,
    # counted as left out, and not remembered.
    name_claims_max: int = 256
    # Digests of names in the sketch of a server's catalogue, 8 characters each. Up to as many names are compared
    # exactly; of more the share is estimated, within a quarter of all at worst in 19 of 20 cases.
    name_sketch_max: int = 16

    # What is accepted, kept and published.

    # One input record. The largest real ``tools/list`` in the captures is 22 KB; 8 MiB leaves room for a hundred such
    # servers behind one gateway, and bounds what one record can cost to decode.
    record_bytes_max: int = 8 * 1024 * 1024
    depth_max: int = 127  # Nesting of JSON containers: what Assay's own parser accepts, so both refuse the same input
    # Objects and arrays of one JSON text. An empty one takes three bytes there and over fifty in memory; a list of 8
    # MiB from real servers has half as many.
    containers_max: int = 262_144
    integer_digits_max: int = 309  # Digits of one integer: the largest double has 309
    # Tools in one snapshot. A full fingerprint costs under a millisecond each, so a hostile list costs seconds at most.
    tools_max: int = 5_000
    # Definitions of the latest distinct lists that are kept decoded, so that a repeated list costs little: a thousand
    # real ones. Decoded they take some five times as much.
    offers_kept_bytes_max: int = 24 * 1024 * 1024
    # Prompts, or resource templates, of one snapshot that are compared: as many as tools. A list with more is compared
    # as one that is not complete.
    items_max: int = 5_000
    # Characters of a server's instructions: as many as are searched of one definition. Real ones have up to 8,000.
    instructions_chars_max: int = 262_144
    # Top-level fields of one tool. Each gets a digest of its own; real tools have ten at most.
    tool_fields_max: int = 64
    # Characters of the name of such a field. The names of changed fields stand in findings and alerts.
    field_name_chars_max: int = 128
    # One tool definition in canonical form, which can be longer than what was received (``1e20``). Its record holds it
    # and its projection, and must fit into one Kafka message.
    definition_bytes_max: int = 4 * 1024 * 1024
    # Privileged tools that the inventory of a first list names: 20 KB with the longest names. All are counted.
    privileged_named_max: int = 20
    # Findings of other kinds that one alert about a definition takes in: 8 KB of state. Further ones are alerts of
    # their own.
    alert_parts_max: int = 16
    alert_observers_max: int = 1_000  # Observers that an alert counts one by one; further ones are counted together
    # Latest offsets that an alert remembers per input partition, to count no record twice. What is found late, when a
    # control record changes the past, is counted as long as it is among as many.
    alert_origins_max: int = 64
    # Alerts of one severity that one record begins; the others are folded into one. Real upgrades change some fourteen
    # tools: what a person reads one by one in a morning.
    alerts_per_record_max: int = 20
    # Records of one server whose alerts are counted. What one record leads to stands together in the log; that of eight
    # observers may be mixed.
    alert_records_max: int = 8
    # Members that a folded alert names, most severe first: 60 KB with the longest names. All of them are counted, and
    # all stand in the finding topic.
    folded_named_max: int = 50
    # Alerts ended by one record: 68 KB. A list of 5,000 tools that all change ends more than one record holds.
    resolution_uids_max: int = 1_000
    # Alerts that are written for one tick: a second's work. The rest waits for the next tick, so that a worker that
    # catches up after an outage still answers its brokers.
    alerts_per_tick_max: int = 2_000
    # Repetitions of one alert that are made up for at once, after an outage; of more only the last is written.
    repeats_made_up_max: int = 100
    # Characters of one identifier (server, observer, tool, snapshot, call). They become Kafka keys and alert fields.
    identifier_chars_max: int = 1_024
    prefixes_max: int = 256  # Rules for the prefixes of one gateway, about one a server
    # Characters that a gateway puts before a tool's name: the name of a server, and a separator.
    prefix_chars_max: int = 256
    span_attributes_max: int = 256  # Attributes of a span: OpenTelemetry's SDKs keep 128 unless configured otherwise
    # Latest event time, seconds since the epoch: the year 2100. A clock that says more is broken.
    time_max_s: int = 4_102_444_800
    # How far an event time may lie after its record's own timestamp: a day covers any time-zone mistake.
    future_max_ms: int = 24 * 3_600 * 1_000
    # How far before the latest event time of its server a list may lie and be no finding: proxies' clocks differ by
    # seconds, and their batches wait for as long.
    late_limit_ms: int = 60 * 1_000
    # Lists in a row that are not complete before that is a finding: a client that pages through a list, and is
    # interrupted now and then, completes one in as many sessions.
    incomplete_lists_max: int = 20
    # How long a server may have its list cached before that is a finding: a day. Real servers say minutes.
    list_ttl_ms_max: int = 86_400_000
    # Refused records remembered per server and observer, and as many that name no observer; beyond that the oldest two
    # become one.
    rejections_max: int = 64
    # Observers without a list remembered per server, whose records were refused or who were told of a change. Of more,
    # the earliest become one, and from its time on no observer without a list is bound to what others saw.
    unlisted_observers_max: int = 1_000
    # Servers with lists that the registry of a partition remembers, some nine kilobytes each with one tool. Of more,
    # those with the fewest lists are evicted, of these the ones seen longest ago: made-up servers are listed once.
    servers_max: int = 8_192
    # Observers of all its servers that the registry of a partition remembers, some 650 bytes each. Of more, those with
    # the fewest lists are evicted likewise.
    observers_max: int = 262_144
    # How long calls may go on after an announced change before it is a finding that no list follows: clients that list
    # again do so within seconds. A list that is announced to be out of date sooner is no answer.
    announced_limit_ms: int = 60 * 1_000
    # Announced changes in a row, without a list that lasts, that are a finding however fast they come.
    announcements_max: int = 64
    # How long a proxy waits for the next message of a call: an answer, the end of its task, the input it asked for. The
    # record of a call comes with its outcome, so this bounds for how long a server can put off an alert.
    open_call_limit_s: int = 3_600
    # Calls of one connection that wait for a task or for input, at some two kilobytes each. Agents have a few; the
    # record of the one that waits for longest is published when there are more.
    held_calls_max: int = 1_000
    # Lists of a connection that its client need not have yet. A client asks for one at a time; beyond, the oldest
    # counts as given.
    lists_on_the_way_max: int = 64
    # Requests of a server to its client that are counted and hashed in one call. Clients of the SDK give up after ten
    # rounds of input.
    call_inputs_max: int = 64
    signature_chars_max: int = 1_024  # Characters of one signature. A P-256 signature has 96 in base64.
    # Distinct key documents remembered per server and domain; real domains change theirs once in years.
    discoveries_max: int = 64
    # One SchemaPin discovery document. A key and a few fields take under a kilobyte; the rest is room for over three
    # thousand revoked keys.
    discovery_bytes_max: int = 256 * 1024
    # Characters of a semantic version. Handshake's recorder takes as many; real versions have ten.
    version_chars_max: int = 64
    # Characters of one text in a tool's ``_meta.handshake``: what Handshake takes for tool ids and capabilities. A
    # server writes it, so it is bounded before it is shown.
    contract_text_chars_max: int = 256
    # Required capabilities of one tool. Each stands in reports; a tool that needs more asks for everything.
    capabilities_max: int = 64
    # Arguments, and results, of one HTC-1.0 envelope in canonical form: the cap of that contract.
    htc_payload_bytes_max: int = 32 * 1_024
    # One HTC-1.0 envelope as received: its payload at four times the cap, for escapes and white space, or with details
    # of an error and lists of resources beside it.
    htc_envelope_bytes_max: int = 128 * 1_024
    # One schema in canonical form, where it is held against its dialect: that can cost time in the square of its
    # length. The largest of the captures has 1,137 bytes.
    schema_bytes_max: int = 64 * 1_024
    # Answers about servers that one process keeps: what was in force, and how it stood to its pins. At most some 5 KB
    # each, half a gigabyte together. When there is no room for another, all are dropped.
    answers_max: int = 100_000
    # Key, value and headers of a call that is re-routed: a record, and a mebibyte for the rest. A compressed record may
    # be larger than its copy's topic takes, which would stop its partition.
    rerouted_bytes_max: int = 9 * 1024 * 1024
    # Names of servers of which one process remembers the partition: some 200 bytes each, 700 at most.
    partitions_kept_max: int = 100_000
    # Longer names are worked out each time, so that made-up ones do not fill the memory.
    partition_name_chars_max: int = 128
    # Observations kept per server and observer. Older repeats are folded first, see ``bindings.timeline``.
    timeline_entries_max: int = 512
    # Repeated lists of an observer that one fact of the binding topic then stands for. What such a run says beside its
    # rows, some 450 bytes, is shared by as many; up to 15 facts of 250 bytes wait to be packed.
    seen_run_rows_min: int = 16
    # Rows of a run. It is written again with 16 more each time, so each row 2.5 times; with the longest ids it is less
    # than half a megabyte.
    seen_run_rows_max: int = 64
    # Facts of definitions and catalogues that a join remembers, by their length, so that equal ones on other servers
    # are kept once: some twenty thousand real definitions.
    shared_facts_bytes_max: int = 32 * 1024 * 1024
    # Facts of one server that are kept as they were read until it is asked for. More take less memory as lists and
    # observers, and make the first call that asks for it wait: 64 take about a millisecond.
    unread_facts_max: int = 64
    # Ids, digests and names of topics remembered while facts are read, so that equal ones are one object: those of the
    # largest fleet that was measured. Where there are more, all are forgotten.
    shared_texts_max: int = 256 * 1024
    # Distinct lists in a row, none of them complete, that add up to what an observer is offered: 64 pages of one list.
    # What only an older one names is offered no more.
    lists_merged_max: int = 64
    # Names of one server in no list that is kept any more, whose last definition is: what comes back is compared with
    # it. Real servers drop some ten tools in a year.
    former_tools_max: int = 1_000
    # Those definitions, packed: two of the largest, or several thousand real ones.
    former_tools_bytes_max: int = 8 * 1024 * 1024
    # Definitions kept of one server, packed: twenty thousand real ones, or the eight largest lists. A server with new
    # definitions in every list loses its older observations sooner; the two latest always stay.
    server_definitions_bytes_max: int = 64 * 1024 * 1024
    # How far agents may be ahead in one partition of evidence, by event time, of another with records to read: windows
    # remember as much as they are long beyond their beginning.
    agent_lead_ms: int = 60 * 1_000
    # Keys of one partition that agents keep state for. Beyond it the states that rested longest are dropped.
    agent_keys_max: int = 100_000
    agent_state_bytes_max: int = 64 * 1024  # State of one key as JSON. It is written to Kafka whenever it changes.
    # Findings that one record may lead to in one agent: one says enough, and a person reads them.
    agent_findings_max: int = 16
    agent_references_max: int = 64  # Records that one finding of an agent refers to
    # Texts that one key of an agent consists of, each an identifier: server, tool, actor, trace.
    agent_key_parts_max: int = 8
    # Items that one window remembers, the latest ones; with names of 64 characters they fit into a state.
    agent_window_items_max: int = 256


DEFAULT_LIMITS = Limits()

# One file of pins, or one lockfile: twenty thousand pins of the longest kind.
PIN_FILE_LIMITS = Limits(record_bytes_max=10 * 1024 * 1024)


# Pages of the store that one connection keeps in memory: the inner pages of every index over a million calls.
STORE_CACHE_KIB = 64 * 1_024

# How long a reader of the store waits for a lock. The WAL has none in its way but while it is made or recovered.
STORE_WAIT_MS = 10_000

# Rows of one answer of the store: more than a screen, and a bound on what one question takes.
STORE_PAGE_ROWS_MAX = 1_000

# Pages of the store's write-ahead log before they go to their places: 64 MiB, so that a page that changes with every
# batch is written there once for several of them.
STORE_LOG_PAGES = 16_384

STORE_SUBJECTS_KEPT_MAX = 65_536  # Subjects whose number in the store a process remembers; each costs some 200 bytes

# Records that go into the store in one transaction: fewer cost more each, and what a kill undoes is read again.
STORE_BATCH_RECORDS = 10_000

# Records of evidence whose own digests are kept in one part of their table. A digest is looked for in each part, 977 of
# a million records; a batch, even of one record, writes its rows in the part anew. At most 65,536: part of the format.
STORE_ERA_RECORDS = 1_024

STORE_DROP_ROWS = 10_000  # Rows of evidence dropped in one transaction, so that filling and reading go on in between

# Lists of one server that the store keeps, but for those in force: a server that changes its list with every question
# fills a store otherwise, and drives the evidence of others out.
STORE_LISTS_PER_SERVER_MAX = 1_000

# Tools in all the lists of one server that the store keeps, those in force included: ten lists of the largest size. Its
# definitions, names and verdicts follow from them.
STORE_LISTED_PER_SERVER_MAX = 50_000

# Alerts of one server that the store keeps, closed ones going first: more than anybody reviews.
STORE_ALERTS_PER_SERVER_MAX = 2_000

# Findings of one server that the store keeps: what its alerts were raised by, the latest.
STORE_FINDINGS_PER_SERVER_MAX = 10_000

STORE_ALERT_HEAD = 5  # First records of an alert, which the store keeps in any case: how it began

# Records of one alert that the store keeps, the first and the latest ones: what a history shows.
STORE_ALERT_RECORDS_MAX = 20

# Digests by which one alert is found: an alert that goes on for ever may name a new one each time.
STORE_ALERT_DIGESTS_MAX = 200

# Changes of one server that nobody decided, as of keys that its domain publishes: it can change them at will.
STORE_CHANGES_PER_SERVER_MAX = 1_000

STORE_CANDIDATES_MAX = 10  # Digests that are listed where a prefix fits several: more than a screen helps nobody choose

STORE_PLACES_MAX = 1_000  # Places of one digest that are listed

# Kinds of calls that have a digest in common and are looked for in eras; of more, the calls are read in order, since
# most of them have it. Callers choose how many there are.
STORE_SUBJECTS_SOUGHT_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """Bounds on one evidence bundle: those of Assay's own verifier, which refuses anything larger."""

    bundle_bytes_max: int = 100 * 1024 * 1024  # The file, compressed
    decoded_bytes_max: int = 1024 * 1024 * 1024  # The file, decompressed: what a bomb may cost
    # ``manifest.json``. Ours have under a kilobyte; it is the only part that is read whole.
    manifest_bytes_max: int = 10 * 1024 * 1024
    events_bytes_max: int = 500 * 1024 * 1024  # ``events.ndjson``. A hundred thousand records of ours have some 120 MB.
    events_max: int = 100_000  # Events of one bundle
    line_bytes_max: int = 1024 * 1024  # One event with its line feed. Records of ours have one or two kilobytes.
    depth_max: int = 64  # Nesting of JSON containers in one event, or in the manifest


BUNDLE_LIMITS = BundleLimits()

# One archive of lines, decompressed: some fifty million records. Archives are read line by line, so this bounds time,
# not memory.
ARCHIVE_DECODED_BYTES_MAX = 64 * 1024 * 1024 * 1024

# Calls that ``verify`` joins at a time. More gain nothing: what is written has left the caches of the
# processor before it is used.
CALLS_TOGETHER_MAX = 16

CALLS_TOGETHER_BYTES_MAX = 1024 * 1024  # Bytes of these, with their evidence where there is some

# One line of an archive. The largest record of any topic has 9 MiB (an input record and the headers of its rejection);
# as a record line it takes at most twice that, in escapes or base64, and its place in the log.
LINE_BYTES_MAX = 20 * 1024 * 1024

# Memory that a zstd frame may ask for: what the ``zstd`` tool itself reads without being asked to take more.
ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024

# No event and no record line is shorter, and none that counts as a list: its type alone takes 34 bytes.
SHORT_LINE_BYTES = 32

# Refused records of one file or log that are kept and told one by one: more than anybody reads.
REFUSED_RECORDS_MAX = 10_000
# Of those, how many a question names: of a file of another kind no line can be read, and the answer comes with them.
REFUSED_NAMED_MAX = 20

REFUSED_BYTES_MAX = 32 * 1024 * 1024  # Bytes of those of one log that a replay writes: three of the largest records

# The progress file of a replay. It has some hundred bytes for each log and alert that it goes on from.
PROGRESS_FILE_BYTES_MAX = 64 * 1024 * 1024

# Values of records that a command keeps in memory in one place while they wait for others; more go to a temporary file,
# or are given on early. Four of the largest records.
HELD_BYTES_MAX = 32 * 1024 * 1024

# Logs (partitions of topics) in the archives of one command, each with some memory of its own. The largest deployment
# that the settings allow has 30,000 partitions of input.
ARCHIVE_LOGS_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolLimits:
    """Bounds of a publisher's spool."""

    head_bytes_max: int = 4 * 1024 * 1024  # What is read at once; the last record may go beyond it
    processes_max: int = 64  # Processes that share a folder, each with a spool of its own in it
    # How often what is queued goes to the spool while the brokers are away: what a kill may lose.
    interval_s: float = 0.25


SPOOL_LIMITS = SpoolLimits()


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
    # How long an announcement stream must live to count as a success; breaks of shorter ones double the pause.
    stream_steady_s: float = 300.0
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
    # Calls of a tool that the page of an alert counts, which takes three seconds for a million. Who calls it more often
    # must not keep the page away.
    counted_calls_max: int = 500_000
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

    # One header field, the request line, and all fields of a request together: a request in progress holds them.
    # Access tokens with many groups have some 16 KB.
    header_bytes_max: int = 64 * 1024
    # One header field of an answer. Node's clients take no more than this for the whole head.
    answer_field_bytes_max: int = 16 * 1024
    # What a connection may have sent before its request is at work, and all of them together. A request head, and as
    # much of a body as is read before anybody asks for it: a buffer of 128 KB and one read of the socket.
    early_bytes_max: int = 512 * 1024
    all_early_bytes_max: int = 64 * 1024 * 1024
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
    # What an exchange counts for in the backlog beside its bodies, unless its header fields are longer.
    exchange_cost_bytes: int = 4_096
    # Characters of an access token that is read for its claims; longer ones are opaque.
    token_chars_max: int = 64 * 1024
    # How long connecting to a server may take, TLS included; and the handshake of a client.
    connect_limit_s: float = 10.0
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
    client_requests_max: int = 256  # Those of one client: a quarter, as of the bytes
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
    # How soon a changed file of clients counts. It is looked at, and read if it has changed or could not be read.
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
