"""Active observer that lists servers itself, to detect drift before an agent meets it."""
