"""``assay-stream console``: web pages over the store, to look and search. It changes nothing."""
