"""``assay-stream ingest``: observations over HTTP, for whatever speaks no Kafka."""
