"""The command line. Errors go to standard error as one clear sentence each.

Exit codes: 0 done, 1 the answer is no, 2 bad input or settings, 3 something outside failed, 4 our own logs contradict
each other, 5 nothing found.
"""

import sys

from assay_stream.errors import ConfigurationError, needing_extra


def main() -> None:
    """Run the command line, or say which packages it needs."""
    try:
        try:
            with needing_extra("cli"):
                from assay_stream.cli.app import run
        except ConfigurationError as error:
            print(f"assay-stream: {error}", file=sys.stderr)
            sys.exit(2)
        run()
    except KeyboardInterrupt:
        # A command ends by itself: this came while it was loaded.
        sys.exit(130)
