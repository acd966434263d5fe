"""Evidence recomputed from the logs, and replays compared with what was recorded."""
