"""Bounds of the store, and of files: bundles, archives, spools."""

from __future__ import annotations

from dataclasses import dataclass

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

# Records of evidence whose own digests are kept in one part of their table: a batch changes that part only, and a
# digest is looked for in each part, 31 for a million records. Part of the store's format.
STORE_ERA_RECORDS = 32_768

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

# Kinds of calls that have a digest in common whose calls are looked up one by one and merged; of more, the calls are
# read by time, since most of them have it.
STORE_SUBJECTS_MERGED_MAX = 64


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

# Calls that a replay or ``verify`` joins at a time. More gain nothing: what is written has left the caches of the
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
