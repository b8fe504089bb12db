"""Checkpoints of a run, in a folder for each saved step, written while training goes on."""

from __future__ import annotations

import logging
import os
import pickle
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import fsspec  # type: ignore[import-untyped]
import torch.distributed as dist
from fsspec.core import url_to_fs  # type: ignore[import-untyped]
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from xlaprof.runtime.modes import barriers

from . import preemption
from .planners import SPMDLoadPlanner, SPMDSavePlanner
from .states import sharded_cpu_state_dict

_log = logging.getLogger(__name__)
_METADATA = ".manager_metadata"


@dataclass
class CheckpointMetadata:
    """The metadata in a checkpoint's folder."""

    step: int
    ts: datetime


class CheckpointManager:
    """Saves states to ``path``, a folder or any address fsspec knows, and restores them.

    ::

        manager = CheckpointManager("checkpoints", save_interval=100, max_to_keep=2)
        for step, batch in enumerate(loader):
            ...
            manager.save_async(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        manager.join()

    ``torch.distributed`` has to be initialized, on all processes. With ``chkpt_on_preemption`` an extra checkpoint is
    taken when the machine is about to be preempted (SIGTERM): call ``save`` or ``save_async`` at every step.

    Args:
        path: a folder for each step is made in it.
        save_interval: steps from one checkpoint to the next.
        max_to_keep: the oldest are deleted; 0 keeps all.
        max_pending_async: checkpoints that may wait to be written; one more waits for the first of them.
        num_of_threads: number of threads that write a checkpoint.
        process_group: the processes that save together; by default a new group, over host tensors.
        chkpt_on_preemption: watch for SIGTERM.
    """

    def __init__(
        self,
        path: str,
        save_interval: int,
        max_to_keep: int = 0,
        max_pending_async: int = 1,
        num_of_threads: int = 1,
        process_group: dist.ProcessGroup | None = None,
        chkpt_on_preemption: bool = True,
    ) -> None:
        assert dist.is_initialized(), "A process group is required."
        assert save_interval > 0, "save_interval must be positive"
        assert max_pending_async > 0, "max_pending_async must be positive"
        assert max_to_keep >= 0, "max_to_keep must be non-negative"
        self.base_path = os.path.join(path, "")
        self.save_interval = save_interval
        self.max_to_keep = max_to_keep
        self.num_of_threads = num_of_threads
        self.chkpt_on_preemption = chkpt_on_preemption
        # Checkpoints are coordinated from a thread: by tensors on the host, not as part of graphs.
        on_host = "gloo" if dist.get_backend() == "xla" else None
        self.pg = process_group or dist.new_group(backend=on_host)
        self._pool = ThreadPoolExecutor(1, "xlaprof checkpoints")
        self._places = threading.Semaphore(max_pending_async)
        self._futures: list[Future[None]] = []
        self._saving = threading.Lock()
        self._tracked = self._found()
        if chkpt_on_preemption:
            preemption.activate()

    def _found(self) -> deque[CheckpointMetadata]:
        """The checkpoints in the folder, oldest first."""
        fs, path = url_to_fs(self.base_path)
        if not fs.exists(path):
            fs.makedirs(path, exist_ok=True)
            return deque()
        found, invalid = [], []
        for folder in fs.ls(path, detail=False):
            try:
                with fs.open(os.path.join(folder, _METADATA), "rb") as file:
                    found.append(pickle.load(file))
            except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError):
                invalid.append(folder)
        if invalid:
            _log.warning("Ignoring invalid checkpoints: %s", invalid)
        return deque(sorted(found, key=lambda one: one.ts))

    def _path(self, step: int) -> str:
        return os.path.join(self.base_path, str(step))

    def _delete(self, step: int) -> None:
        if dist.get_rank(self.pg) == 0:
            fs, path = url_to_fs(self._path(step))
            if fs.exists(path):
                fs.rm(path, recursive=True)

    def _save(self, step: int, state_dict: Any) -> None:
        with self._saving:
            path = self._path(step)
            self._delete(step)
            try:
                save(
                    state_dict=state_dict,
                    storage_writer=FsspecWriter(path, thread_count=self.num_of_threads, per_thread_copy_ahead=0),
                    planner=SPMDSavePlanner(),
                    process_group=self.pg,
                )
            except CheckpointException as error:  # not an Exception, and a page long
                rank, (why, _) = min(error.failures.items())
                raise RuntimeError(f"step {step} could not be saved to {path}: rank {rank}: {why}") from error
            metadata = CheckpointMetadata(step, datetime.now())
            self._tracked = deque(one for one in self._tracked if one.step != step)
            self._tracked.append(metadata)
            if dist.get_rank(self.pg) == 0:
                with fsspec.open(os.path.join(path, _METADATA), "wb") as file:
                    pickle.dump(metadata, file)
            while self.max_to_keep and len(self._tracked) > self.max_to_keep:
                self._delete(self._tracked.popleft().step)

    def should_save(self, step: int) -> bool:
        """Is ``step`` one of those to be saved, or is the machine about to be preempted?"""
        preempted = self.chkpt_on_preemption and self.reached_preemption(step)
        if preempted:
            _log.warning("Preemption sync point reached at step %d. Triggering a checkpoint.", step)
        return preempted or step % self.save_interval == 0

    def save(self, step: int, state_dict: Any, force: bool = False) -> bool:
        """Save ``state_dict`` if :meth:`should_save` is true, or with ``force``; returns whether it was saved."""
        if not (self.should_save(step) or force):
            return False
        barriers.sync(wait=True)
        self._save(step, state_dict)
        return True

    def save_async(self, step: int, state_dict: Any, force: bool = False) -> bool:
        """As :meth:`save`, but a thread writes: returns when the state is on the host.

        Raises the error of an earlier checkpoint.
        """
        if not (self.should_save(step) or force):
            return False
        barriers.sync(wait=True)
        on_host = sharded_cpu_state_dict(state_dict)
        self._places.acquire()
        self._forget_done()
        future = self._pool.submit(self._save, step, on_host)
        future.add_done_callback(lambda _: self._places.release())
        self._futures.append(future)
        return True

    def _forget_done(self) -> None:
        done = [future for future in self._futures if future.done()]
        self._futures = [future for future in self._futures if future not in done]
        for future in done:
            future.result()

    def restore(self, step: int, state_dict: Any) -> None:
        """Load the checkpoint of ``step`` into ``state_dict``, whose tensors get their values in place."""
        tracked = self.all_steps()
        assert step in tracked, f"Cannot restore from untracked step {step}. Valid steps are: {tracked}"
        load(
            state_dict=state_dict,
            storage_reader=FsspecReader(self._path(step)),
            planner=SPMDLoadPlanner(),
            process_group=self.pg,
        )

    def all_steps(self) -> list[int]:
        """The steps that have a checkpoint."""
        return sorted(one.step for one in self._tracked)

    def join(self) -> None:
        """Wait until all checkpoints are written. Raises the error of the first that failed."""
        futures, self._futures = self._futures, []
        for future in futures:
            future.result()

    def reached_preemption(self, step: int) -> bool:
        """Is the machine about to be preempted? All processes ask at every step, and get the same answer."""
        assert self.chkpt_on_preemption, (
            "Preemption detection not enabled. Please set `chkpt_on_preemption`  when creating the CheckpointManager"
        )
        return preemption.reached(step)
