-- The tables of the store. Whatever changes here changes SCHEMA_VERSION in schema.py: a store is rebuilt, never migrated.
-- Times are microseconds since the epoch.

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

-- What many calls have in common: server, tool, and the digests of what was in force, as [[role, scheme, value], ...].
CREATE TABLE subject (
  id INTEGER PRIMARY KEY, server TEXT NOT NULL, tool TEXT NOT NULL, full TEXT NOT NULL, hash BLOB NOT NULL,
  digests TEXT NOT NULL, UNIQUE (server, tool, hash)
) STRICT;

-- How many calls of a subject are here.
CREATE TABLE subject_calls (subject INTEGER PRIMARY KEY, calls INTEGER NOT NULL) STRICT;

-- Its other columns are those that fields of EvidenceRow in rows.py declare. `body`: the record as published, compressed.
CREATE TABLE evidence (
  id INTEGER PRIMARY KEY, time_us INTEGER NOT NULL, source INTEGER NOT NULL, pos INTEGER NOT NULL,
  subject INTEGER NOT NULL, {call_columns}, body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX evidence_place ON evidence (source, pos);
CREATE INDEX evidence_time ON evidence (time_us);
-- With the tool: calls of a day are counted without a look at the table.
CREATE INDEX evidence_server ON evidence (server, time_us, tool);
CREATE INDEX evidence_observer ON evidence (observer, time_us);
-- Nearly all are allowed: an index would not narrow these.
CREATE INDEX evidence_decision ON evidence (decision, time_us) WHERE decision != 'allow';
CREATE INDEX evidence_unbound ON evidence (unbound, time_us) WHERE unbound IS NOT NULL;

-- What calls alone have: keyed hashes of their digests and identifiers, checked against the record when looked up.
-- STORE_ERA_RECORDS numbers of evidence are an era. Its hashes lie in 256 rows by their first byte, `id` is the era and
-- that byte; an entry is a hash and the number within the era. A row for each hash costs as much as all else.
CREATE TABLE mark (id INTEGER PRIMARY KEY, entries BLOB NOT NULL) STRICT;
-- What the calls of an era have in one column, a number of fixed width for each, 0 where a call was dropped: keyed hashes
-- of names, checked against the row. `id` is the column and the era. In place of an index for each column, of which
-- one over many names takes as long to fill as the table.
CREATE TABLE era_column (id INTEGER PRIMARY KEY, entries BLOB NOT NULL) STRICT;
-- Event times of its calls, by which a page of a digest that many calls have needs few eras.
CREATE TABLE era (id INTEGER PRIMARY KEY, first_us INTEGER NOT NULL, last_us INTEGER NOT NULL) STRICT;

-- Calls as far as their evidence is here: counting a million rows takes longer than a page may.
CREATE TABLE called (
  server TEXT NOT NULL, tool TEXT NOT NULL, observer TEXT NOT NULL, calls INTEGER NOT NULL, last_us INTEGER NOT NULL,
  PRIMARY KEY (server, tool, observer)
) WITHOUT ROWID, STRICT;
CREATE INDEX called_observer ON called (observer, server);

-- The facts that the registry publishes, as its topic holds them, but for the text of definitions: what was in force when.
CREATE TABLE fact (
  part INTEGER NOT NULL, key BLOB NOT NULL, server TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (part, key)
) WITHOUT ROWID, STRICT;
CREATE INDEX fact_server ON fact (server);
-- Servers whose facts were dropped for their size. Some of them would give wrong answers, so there are none.
CREATE TABLE without_facts (server TEXT PRIMARY KEY) WITHOUT ROWID, STRICT;

-- What the registry says: rows by the key of their fact and its partition, so that a compacted topic gives the same.
CREATE TABLE tool_fact (
  id INTEGER PRIMARY KEY, part INTEGER NOT NULL, fact BLOB NOT NULL, server TEXT NOT NULL, full TEXT NOT NULL,
  schemes TEXT NOT NULL, errors TEXT NOT NULL, UNIQUE (part, fact)
) STRICT;
CREATE INDEX tool_fact_server ON tool_fact (server);
CREATE INDEX tool_fact_full ON tool_fact (full, server, part);
CREATE TABLE catalogue (
  id INTEGER PRIMARY KEY, part INTEGER NOT NULL, fact BLOB NOT NULL, server TEXT NOT NULL, digest TEXT NOT NULL,
  UNIQUE (part, fact)
) STRICT;
CREATE INDEX catalogue_server ON catalogue (server, digest);
CREATE TABLE listed (
  catalogue INTEGER NOT NULL, tool TEXT NOT NULL, full TEXT NOT NULL, PRIMARY KEY (catalogue, tool, full)
) WITHOUT ROWID, STRICT;
CREATE INDEX listed_tool ON listed (tool, catalogue);
CREATE TABLE seen (
  id INTEGER PRIMARY KEY, part INTEGER NOT NULL, fact BLOB NOT NULL, server TEXT NOT NULL, observer TEXT NOT NULL,
  time_us INTEGER NOT NULL, pos INTEGER NOT NULL, digest TEXT NOT NULL, snapshot TEXT NOT NULL,
  run INTEGER, -- the offset in the key of the run that has taken its fact's place
  UNIQUE (part, fact)
) STRICT;
CREATE INDEX seen_time ON seen (time_us);
CREATE INDEX seen_server ON seen (server, observer, time_us);
CREATE INDEX seen_digest ON seen (digest, server);
CREATE INDEX seen_observer ON seen (observer, time_us);
CREATE TABLE verdict (
  id INTEGER PRIMARY KEY, part INTEGER NOT NULL, fact BLOB NOT NULL, server TEXT NOT NULL, tool TEXT,
  status TEXT NOT NULL, action TEXT NOT NULL, body TEXT NOT NULL, UNIQUE (part, fact)
) STRICT;
CREATE INDEX verdict_server ON verdict (server, tool);

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

-- What was found and what ended it, under the key that it has in its topic.
CREATE TABLE finding (
  id INTEGER PRIMARY KEY, server TEXT NOT NULL, time_us INTEGER NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE INDEX finding_server ON finding (server, time_us);
CREATE INDEX finding_time ON finding (time_us);
-- Suppression rules in force. Operators set them, so no bound drops them.
CREATE TABLE suppression (
  server TEXT NOT NULL, rule TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (server, rule)
) WITHOUT ROWID, STRICT;

CREATE TABLE decision (
  id INTEGER PRIMARY KEY, time_us INTEGER NOT NULL, change TEXT NOT NULL, server TEXT NOT NULL, tool TEXT,
  author TEXT, alert TEXT, body BLOB NOT NULL
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

-- What stands on a row goes with it.
CREATE TRIGGER tool_fact_gone AFTER DELETE ON tool_fact BEGIN
  DELETE FROM digest WHERE place = 'tool' AND owner = old.id AND place != 'calls';
END;
CREATE TRIGGER catalogue_gone AFTER DELETE ON catalogue BEGIN
  DELETE FROM digest WHERE place = 'catalogue' AND owner = old.id AND place != 'calls';
  DELETE FROM listed WHERE catalogue = old.id;
END;
CREATE TRIGGER verdict_gone AFTER DELETE ON verdict BEGIN
  DELETE FROM digest WHERE place = 'verdict' AND owner = old.id AND place != 'calls';
END;
CREATE TRIGGER definition_gone AFTER DELETE ON definition BEGIN
  DELETE FROM digest WHERE place = 'definition' AND owner = old.id AND place != 'calls';
END;
CREATE TRIGGER alert_gone AFTER DELETE ON alert BEGIN
  DELETE FROM digest WHERE place = 'alert' AND owner = old.id AND place != 'calls';
  DELETE FROM alert_record WHERE alert = old.id;
END;
CREATE TRIGGER decision_gone AFTER DELETE ON decision BEGIN
  DELETE FROM digest WHERE place = 'decision' AND owner = old.id AND place != 'calls';
END;
