"""PyTorch on CUDA, compiled or eager: when the device was busy, what kept it waiting, and where the host waited for it.

==================  ==================================================================================
:mod:`.watch`       the threads, and what they tell
:mod:`.poller`      asks the device every five milliseconds, without Python (``poll.c``)
:mod:`.stretches`   from its answers to stretches in which the device was busy
:mod:`.waits`       whether a call waits for the device
:mod:`.driver`      what of CUDA and of PyTorch is private
==================  ==================================================================================
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from xlaprof.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

    from xlaprof.recording.recorder import Recorder

    from .watch import Watch

_SETTING = "XLAPROF_WATCH_GPU"  # 0: no device is watched


class Cuda:
    name = "torch.cuda"
    module = "torch.cuda"
    vocabulary = Vocabulary(
        barrier="",
        barrier_code="",
        after_barrier="",
        send_ahead="loader workers with pin_memory=True, and .to(device, non_blocking=True)",
        scalars_as_inputs="",
        scalars_as_inputs_code="",
        shard="distribute_tensor",
    )
    #: most programs that import torch.cuda have no such device: a log has this source once one is in use
    announces_itself = True

    def attach(self, rec: Recorder) -> _Attached:
        return _Attached(rec)


class _Attached:
    """Nothing runs until PyTorch initialises CUDA."""

    def __init__(self, rec: Recorder) -> None:
        from .driver import when_initialised

        self._rec = rec
        self._watch: Watch | None = None
        self._cancel: Callable[[], None] = lambda: None
        if os.environ.get(_SETTING, "1").strip().lower() not in ("0", "false", "no", "off"):
            self._cancel = when_initialised(self._begin)

    def _begin(self) -> None:
        """PyTorch calls this while it initialises CUDA, in the program's thread: nothing may be raised."""
        from xlaprof.errors import warn
        from xlaprof.recording import recorder

        if recorder.active is not self._rec or self._watch is not None:
            return
        try:
            from .driver import Driver
            from .watch import Watch

            self._watch = Watch(self._rec, Driver, Cuda.name, Cuda.vocabulary)
        except Exception as error:
            warn(f"the GPU is not watched: {type(error).__name__}: {error}")

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        return {}, {}

    def detach(self) -> None:
        self._cancel()
        if self._watch is not None:
            self._watch.stop()


LIVE = Cuda()
