"""Every bound of records, analysis, alerts, agents and metrics."""

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
    # neighbours in the list need.
    definition_work_units_max: int = 2_000_000
    # Characters of the path of one change, or of one sign. Paths of real changes have under 200; names of a hostile
    # schema would make each path as long as the schema.
    path_chars_max: int = 1_024
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
