"""The command line. Errors go to standard error as one clear sentence each.

Exit codes: 0 done, 1 the answer is no, 2 bad input or settings, 3 something outside failed, 4 our own logs contradict
each other, 5 nothing found.
"""

import sys


def main() -> None:
    """Run the command line, or say which packages it needs."""
    try:
        from assay_stream.cli.app import run
    except ModuleNotFoundError as error:
        # Not through errors.py's printing helpers: those need the missing packages.
        print(
            f"assay-stream: extra_missing: {error.name} is not installed: pip install 'assay-stream[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    run()
