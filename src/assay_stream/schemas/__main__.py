"""``python -m assay_stream.schemas``."""

import sys

from assay_stream.schemas.folder import main

sys.exit(main())
