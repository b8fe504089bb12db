"""A TensorBoard log directory: a profile for XProf's Profile tab, a curve per figure of a step, the findings as text.

Needs ``tensorboard``, ``google-crc32c`` and ``numpy`` to write them; showing the profile also needs ``xprof``. All come
with the extra ``xlaprof[tensorboard]``.
"""

from __future__ import annotations

from importlib.util import find_spec

from xlaprof.errors import UserError
from xlaprof.export.written import Job, Written

_NEEDED = ("tensorboard", "google_crc32c", "numpy")


def export(job: Job) -> Written:
    """Write ``job`` as a new run of the log directory ``job.out``."""
    for name in _NEEDED:
        if find_spec(name) is None:
            raise UserError(f'the export to TensorBoard needs {name}: pip install "xlaprof[tensorboard]"')
    from xlaprof.export.logdir import write

    return write(job)
