"""``python -m xlaprof``: the same as the ``xlaprof`` console script."""

import os
import sys

if not sys.flags.safe_path:
    sys.path[0] = os.path.dirname(os.__file__)  # not the current folder, whose files may be named like our modules

from xlaprof.cli import main

sys.exit(main())
