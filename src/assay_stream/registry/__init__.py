"""The stage that turns snapshots and control records into facts and findings."""
