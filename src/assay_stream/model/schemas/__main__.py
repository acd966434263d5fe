"""``python -m assay_stream.model.schemas``."""

import sys

from assay_stream.model.schemas.folder import main

sys.exit(main())
