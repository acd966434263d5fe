"""Bounds of the store."""

STORE_CACHE_KIB = 64 * 1_024
"""Pages of the store that one connection keeps in memory: the inner pages of every index over a million calls."""

STORE_WAIT_MS = 10_000
"""How long a reader of the store waits for a lock. The WAL has none in its way but while it is made or recovered."""

STORE_PAGE_ROWS_MAX = 1_000
"""Rows of one answer of the store: more than a screen, and a bound on what one question takes."""

STORE_LOG_PAGES = 16_384
"""Pages of the store's write-ahead log before they go to their places: 64 MiB, so that a page that changes with every
batch is written there once for several of them."""

STORE_SUBJECTS_KEPT_MAX = 65_536
"""Subjects whose number in the store a process remembers; each costs some 200 bytes."""

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

STORE_FINDINGS_PER_SERVER_MAX = 10_000
"""Findings of one server that the store keeps: what its alerts were raised by, the latest."""

STORE_ALERT_HEAD = 5
"""First records of an alert, which the store keeps in any case: how it began."""

STORE_ALERT_RECORDS_MAX = 20
"""Records of one alert that the store keeps, the first and the latest ones: what a history shows."""

STORE_ALERT_DIGESTS_MAX = 200
"""Digests by which one alert is found: an alert that goes on for ever may name a new one each time."""

STORE_CHANGES_PER_SERVER_MAX = 1_000
"""Changes of one server that nobody decided, as of keys that its domain publishes: it can change them at will."""

STORE_CANDIDATES_MAX = 10
"""Digests that are listed where a prefix fits several: more than a screen helps nobody choose."""

STORE_PLACES_MAX = 1_000
"""Places of one digest that are listed."""

STORE_SUBJECTS_MERGED_MAX = 64
"""Kinds of calls that have a digest in common whose calls are looked up one by one and merged; of more, the calls are
read by time, since most of them have it."""
