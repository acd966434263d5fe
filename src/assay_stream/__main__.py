"""``python -m assay_stream``: the command line."""

from assay_stream.cli import main

if __name__ == "__main__":
    main()
