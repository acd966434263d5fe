-- The tables of the store. Whatever changes here changes SCHEMA_VERSION in schema.py: a store is rebuilt, never migrated.
-- Texts that recur are interned in `name`; times are microseconds since the epoch.

CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) WITHOUT ROWID, STRICT;

-- What was dropped: rows of a kind, for which bound.
CREATE TABLE dropped (
  kind TEXT NOT NULL, bound TEXT NOT NULL, rows INTEGER NOT NULL, PRIMARY KEY (kind, bound)
) WITHOUT ROWID, STRICT;

-- How far each log was read. Committed with what was read.
-- `last` and `witness`: the last record read, by which a topic that was made again is noticed.
CREATE TABLE source (
  id INTEGER PRIMARY KEY, role TEXT NOT NULL, topic TEXT NOT NULL, part INTEGER NOT NULL,
  next INTEGER NOT NULL, read INTEGER NOT NULL DEFAULT 0, refused INTEGER NOT NULL DEFAULT 0,
  lost INTEGER NOT NULL DEFAULT 0, ends INTEGER, last INTEGER, witness BLOB, time_us INTEGER NOT NULL DEFAULT 0, UNIQUE (topic, part)
) STRICT;

CREATE TABLE name (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
-- The words of decisions, scopes and reasons: few, and never dropped.
CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;

-- What many calls have in common: server, tool, and the digests of what was in force, as [[role, scheme, value], ...].
CREATE TABLE subject (
  id INTEGER PRIMARY KEY, server INTEGER NOT NULL, tool INTEGER NOT NULL, full TEXT NOT NULL, hash BLOB NOT NULL,
  digests TEXT NOT NULL, UNIQUE (server, tool, hash)
) STRICT;

CREATE TABLE evidence (
  id INTEGER PRIMARY KEY, time_us INTEGER NOT NULL, source INTEGER NOT NULL, pos INTEGER NOT NULL,
  subject INTEGER NOT NULL, server INTEGER NOT NULL, tool INTEGER NOT NULL, observer INTEGER NOT NULL, agent INTEGER,
  decision INTEGER, scope INTEGER NOT NULL, unbound INTEGER, ok INTEGER
) STRICT;
CREATE UNIQUE INDEX evidence_place ON evidence (source, pos);
CREATE INDEX evidence_time ON evidence (time_us);
CREATE INDEX evidence_server ON evidence (server, time_us);
CREATE INDEX evidence_came ON evidence (server);
CREATE INDEX evidence_tool ON evidence (tool, time_us);
CREATE INDEX evidence_observer ON evidence (observer, time_us);
CREATE INDEX evidence_subject ON evidence (subject, time_us);
CREATE INDEX evidence_decision ON evidence (decision, time_us) WHERE decision IS NOT NULL;
CREATE INDEX evidence_agent ON evidence (agent, time_us) WHERE agent IS NOT NULL;
CREATE INDEX evidence_unbound ON evidence (unbound, time_us) WHERE unbound IS NOT NULL;
-- Their records, 16 to a block: that of row n is in block n / 16.
CREATE TABLE block (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;

-- What one call alone has: keyed hashes of its digests and identifiers, checked against the record when looked up.
-- `era`: evidence / STORE_ERA_RECORDS. Hashes are random: without eras each batch would change every page of the table.
CREATE TABLE mark (
  era INTEGER NOT NULL, hash INTEGER NOT NULL, time_us INTEGER NOT NULL, evidence INTEGER NOT NULL,
  PRIMARY KEY (era, hash, time_us, evidence)
) WITHOUT ROWID, STRICT;

-- Calls of each hour, and of all, as far as their evidence is here: of tools, and of who reported them.
CREATE TABLE tally (
  hour INTEGER NOT NULL, server INTEGER NOT NULL, tool INTEGER NOT NULL, calls INTEGER NOT NULL,
  PRIMARY KEY (hour, server, tool)
) WITHOUT ROWID, STRICT;
CREATE TABLE called (
  server INTEGER NOT NULL, tool INTEGER NOT NULL, calls INTEGER NOT NULL, last_us INTEGER NOT NULL,
  PRIMARY KEY (server, tool)
) WITHOUT ROWID, STRICT;
CREATE INDEX called_tool ON called (tool);
CREATE TABLE reported_tally (
  hour INTEGER NOT NULL, observer INTEGER NOT NULL, calls INTEGER NOT NULL, PRIMARY KEY (hour, observer)
) WITHOUT ROWID, STRICT;
CREATE TABLE reported (
  observer INTEGER NOT NULL, server INTEGER NOT NULL, calls INTEGER NOT NULL, last_us INTEGER NOT NULL,
  PRIMARY KEY (observer, server)
) WITHOUT ROWID, STRICT;
CREATE INDEX reported_server ON reported (server);

-- What the registry says: rows by the key of their fact and its partition, so that a compacted topic gives the same.
CREATE TABLE tool_fact (
  id INTEGER PRIMARY KEY, part INTEGER NOT NULL, fact BLOB NOT NULL, server INTEGER NOT NULL, full TEXT NOT NULL,
  schemes TEXT NOT NULL, errors TEXT NOT NULL, UNIQUE (part, fact)
) STRICT;
CREATE INDEX tool_fact_server ON tool_fact (server);
CREATE INDEX tool_fact_full ON tool_fact (full, server, part);
CREATE TABLE catalogue (
  id INTEGER PRIMARY KEY, part INTEGER NOT NULL, fact BLOB NOT NULL, server INTEGER NOT NULL, digest TEXT NOT NULL,
  UNIQUE (part, fact)
) STRICT;
CREATE INDEX catalogue_server ON catalogue (server, digest);
CREATE TABLE listed (
  catalogue INTEGER NOT NULL, tool INTEGER NOT NULL, full TEXT NOT NULL, PRIMARY KEY (catalogue, tool, full)
) WITHOUT ROWID, STRICT;
CREATE INDEX listed_tool ON listed (tool, catalogue);
CREATE TABLE seen (
  id INTEGER PRIMARY KEY, part INTEGER NOT NULL, fact BLOB NOT NULL, server INTEGER NOT NULL, observer INTEGER NOT NULL,
  time_us INTEGER NOT NULL, pos INTEGER NOT NULL, digest TEXT NOT NULL, snapshot TEXT NOT NULL,
  run INTEGER, -- the offset in the key of the run that has taken its fact's place
  UNIQUE (part, fact)
) STRICT;
CREATE INDEX seen_time ON seen (time_us);
CREATE INDEX seen_server ON seen (server, observer, time_us);
CREATE INDEX seen_digest ON seen (digest, server);
CREATE INDEX seen_observer ON seen (observer, time_us);
CREATE TABLE verdict (
  id INTEGER PRIMARY KEY, part INTEGER NOT NULL, fact BLOB NOT NULL, server INTEGER NOT NULL, tool INTEGER,
  status TEXT NOT NULL, action TEXT NOT NULL, body TEXT NOT NULL, UNIQUE (part, fact)
) STRICT;
CREATE INDEX verdict_server ON verdict (server, tool);
CREATE INDEX verdict_tool ON verdict (tool);

CREATE TABLE definition (id INTEGER PRIMARY KEY, full TEXT NOT NULL UNIQUE, body BLOB NOT NULL) STRICT;

CREATE TABLE alert (
  uid TEXT PRIMARY KEY, id INTEGER NOT NULL UNIQUE, last_ms INTEGER NOT NULL, severity INTEGER NOT NULL, kind TEXT NOT NULL,
  server TEXT NOT NULL, tool TEXT NOT NULL, state TEXT NOT NULL, assigned TEXT NOT NULL, definition TEXT NOT NULL,
  records INTEGER NOT NULL, row TEXT NOT NULL
) STRICT;
CREATE INDEX alert_state ON alert (state, severity DESC, last_ms DESC);
CREATE INDEX alert_definition ON alert (definition);
CREATE INDEX alert_server ON alert (server);
CREATE TABLE alert_record (
  id INTEGER PRIMARY KEY, alert INTEGER NOT NULL, time_ms INTEGER NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE INDEX alert_record_alert ON alert_record (alert);

CREATE TABLE decision (
  id INTEGER PRIMARY KEY, time_us INTEGER NOT NULL, change TEXT NOT NULL, server TEXT NOT NULL, tool TEXT,
  author TEXT, alert TEXT, body TEXT NOT NULL
) STRICT;
CREATE INDEX decision_time ON decision (time_us);
CREATE INDEX decision_server ON decision (server, time_us);
CREATE INDEX decision_alert ON decision (alert) WHERE alert IS NOT NULL;

-- Where digests stand, apart from those of one call alone: `owner` is a row of the table that `place` names.
CREATE TABLE digest (
  value TEXT NOT NULL, place TEXT NOT NULL, owner INTEGER NOT NULL, role TEXT NOT NULL, scheme TEXT NOT NULL,
  PRIMARY KEY (value, place, owner, role, scheme)
) WITHOUT ROWID, STRICT;
-- Those of a subject are known from its row.
CREATE INDEX digest_owner ON digest (place, owner) WHERE place != 'calls';
