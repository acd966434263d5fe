"""Text as people and models read it: words, look-alikes, escaping, and word diffs."""
