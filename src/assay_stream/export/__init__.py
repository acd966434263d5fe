"""Evidence and alerts for other tools: Assay bundles, Parquet and Timesketch."""
