"""Bounds of files: bundles, archives, spools."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """Bounds on one evidence bundle: those of Assay's own verifier, which refuses anything larger."""

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

CALLS_TOGETHER_MAX = 16
"""Calls that a replay or ``verify`` joins at a time. More gain nothing: what is written has left the caches of the
processor before it is used."""

CALLS_TOGETHER_BYTES_MAX = 1024 * 1024
"""Bytes of these, with their evidence where there is some."""

LINE_BYTES_MAX = 20 * 1024 * 1024
"""One line of an archive. The largest record of any topic has 9 MiB (an input record and the headers of its
rejection); as a record line it takes at most twice that, in escapes or base64, and its place in the log."""

ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024
"""Memory that a zstd frame may ask for: what the ``zstd`` tool itself reads without being asked to take more."""

SHORT_LINE_BYTES = 32
"""No event and no record line is shorter, and none that counts as a list: its type alone takes 34 bytes."""

REFUSED_RECORDS_MAX = 10_000
"""Refused records of one file or log that are kept and told one by one: more than anybody reads."""

REFUSED_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of those of one log that a replay writes: three of the largest records."""

PROGRESS_FILE_BYTES_MAX = 64 * 1024 * 1024
"""The progress file of a replay. It has some hundred bytes for each log and alert that it goes on from."""

HELD_BYTES_MAX = 32 * 1024 * 1024
"""Values of records that a command keeps in memory in one place while they wait for others; more go to a
temporary file, or are given on early. Four of the largest records."""

ARCHIVE_LOGS_MAX = 100_000
"""Logs (partitions of topics) in the archives of one command, each with some memory of its own. The largest
deployment that the settings allow has 30,000 partitions of input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolLimits:
    """Bounds of a publisher's spool."""

    head_bytes_max: int = 4 * 1024 * 1024
    """What is read at once; the last record may go beyond it."""

    processes_max: int = 64
    """Processes that share a folder, each with a spool of its own in it."""

    interval_s: float = 0.25
    """How often what is queued goes to the spool while the brokers are away: what a kill may lose."""


SPOOL_LIMITS = SpoolLimits()
