"""TorchTPU, in eager mode: why its batches of deferred operations were cut, and for which it made a program.

Where ``TORCH_TRACE`` is set before the program begins, TorchTPU has a thread that writes each batch into PyTorch's
structured trace, every five seconds and at the program's end. Nothing here imports ``torch_tpu``, whose import ends the
process where its library is missing: who records waits for the program to do it.

Built from the schema of torch-tpu 0.2.0 and tried on logs made by it. It never ran on a TPU.

===================  ======================================================================
:mod:`.batches`      records to batches: pure functions, the same for a process and a file
:mod:`.graphs`       a batch's graph as text: the user's lines, and where two differ
:mod:`.emit`         batches to events
:mod:`.handler`      listens while a recording is on
:mod:`.trace_file`   a file that TORCH_TRACE wrote
===================  ======================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xlaprof.vocabulary import STANDARD

from .trace_file import TraceFile

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder

    from .handler import Handler


class TorchTpu:
    name = "TorchTPU"
    module = "torch_tpu"
    vocabulary = STANDARD

    def attach(self, rec: Recorder) -> Handler:
        from .handler import Handler  # of no use to programs without TorchTPU

        handler = Handler(rec)
        handler.begin()
        return handler


LIVE = TorchTpu()
FILE = TraceFile()
