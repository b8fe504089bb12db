"""``torch_xla._dynamo.config``: the runtime's own settings, so that setting one here is setting it there."""

import sys

from xlaprof.runtime.dynamo import config

sys.modules[__name__] = config
