"""``assay-stream console``: web pages over the store, to look and search, and where it is told so, to decide."""
