"""``python -m xlaprof``: the same as the ``xlaprof`` console script."""

import sys

from xlaprof.cli import main

sys.exit(main())
