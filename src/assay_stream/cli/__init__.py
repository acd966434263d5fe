"""The command line. Every command prints clear errors to standard error and exits 2 for bad input.

Exit codes: 0 done, 1 the answer is no, 2 the input or the settings are wrong, 3 something outside failed,
4 our own logs contradict each other.
"""

from assay_stream.cli.main import main

__all__ = ["main"]
