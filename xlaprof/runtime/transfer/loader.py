"""Batches brought to the devices in the background: ``ParallelLoader`` and ``MpDeviceLoader``.

::

    for x, y in MpDeviceLoader(loader, torch.device("xla")):   # x and y are on the device
        train_step(x, y)                                       # the barrier comes with the next batch

One thread reads the user's loader, others upload: ``device_prefetch_size`` batches at a time, as in PyTorch/XLA, and as
many wait on each device. The threads end after the last batch, after an error, on :meth:`ParallelLoader.close`, or when
the iterator is deleted. An exception in them is raised, with its traceback, after the batches before it, in place of
the next one.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from time import perf_counter_ns
from typing import Any

import torch

from xlaprof import events
from xlaprof.recording import recorder, stacks
from xlaprof.recording.trace import Trace
from xlaprof.runtime.clock import aside, clock
from xlaprof.runtime.modes import barriers
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace import nested

from . import host

_END: Any = object()


class _Channel:
    """A bounded queue that can be closed, which wakes all waiting threads."""

    def __init__(self, size: int) -> None:
        self.size = max(size, 1)
        self.error: BaseException | None = None  # the error that ended it, if any
        self._items: deque[Any] = deque()
        self._changed = threading.Condition()
        self._finished = False

    def put(self, item: Any) -> bool:
        """Add ``item`` when there is room. False: the channel has ended."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self.size or self._finished)
            if self._finished:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def get(self) -> Any:
        """The next item, ``_END`` after the last."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._finished)
            if not self._items:
                return _END
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def ready(self) -> bool:
        """Is the next item there, and done? Or will none come?"""
        return bool(self._items[0].done() if self._items else self._finished)

    def finish(self, error: BaseException | None = None) -> None:
        """Nothing more will be put; items in the channel can still be read."""
        with self._changed:
            if not self._finished:
                self._finished, self.error = True, error
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more will be put or read."""
        with self._changed:
            self._finished = True
            self._items.clear()
            self._changed.notify_all()


class _Lane:
    """The batches of one device, in the loader's order, on the host and uploaded. Threads upload them in groups."""

    def __init__(self, device: torch.device, host_size: int, device_size: int, threads: int) -> None:
        self.tape = tapes.of_device(device)
        self.on_host = _Channel(host_size)
        self.groups = _Channel(threads + 1)  # futures of uploaded batches, in order
        self._group_size = max(device_size, 1)
        self._taking = threading.Lock()
        self._giving = threading.Lock()
        self._given: deque[Any] = deque()  # the rest of the group that is given out
        self._closed = False

    def take(self) -> tuple[Future[list[Any]], list[Any]] | None:
        """The next batches to upload together, and the future they are for; ``None``: there are none left."""
        with self._taking:
            batches: list[Any] = []
            while len(batches) < self._group_size and (batch := self.on_host.get()) is not _END:
                batches.append(batch)
            group: Future[list[Any]] = Future()
            if batches and self.groups.put(group):
                return group, batches
            self.groups.finish(self.on_host.error)
            return None

    def get(self) -> Any:
        """The next batch on the device, ``_END`` after the last. Raises what the loader or the upload raised."""
        with self._giving:
            if not self._given and (group := self.groups.get()) is not _END:
                try:
                    self._given.extend(group.result())
                except BaseException:
                    self.close()
                    raise
            if self._given and not self._closed:
                return self._given.popleft()
            error, self.groups.error = self.groups.error, None
            if error is not None:
                raise error
            return _END

    def ready(self) -> bool:
        """Will :meth:`get` return at once?"""
        return bool(self._given) or self.groups.ready()

    def close(self) -> None:
        self._closed = True
        self.on_host.close()
        self.groups.close()


class PerDeviceLoader:
    """Iterator over the batches of one device: :meth:`ParallelLoader.per_device_loader`."""

    def __init__(self, loader: ParallelLoader, device: torch.device) -> None:
        self._loader = loader
        self._device = device
        self._batches_yielded = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return self._loader.per_device_samples()

    def __next__(self) -> Any:
        return self.next()

    def next(self) -> Any:
        """The barrier, then the next batch; after the last one, the barrier again and ``StopIteration``."""
        if _step_was_marked():  # the profiler's StepTrace has just cut
            self._batches_yielded += 1
        elif self._batches_yielded >= self._loader.batches_per_execution - 1:
            self._batches_yielded = 0
            barriers.cut("loader")
        else:
            self._batches_yielded += 1
        batch = self._loader.next_item(self._device)
        if batch is None:
            barriers.cut("loader")
            raise StopIteration
        return batch


class ParallelLoader:
    """Distributes the batches of ``cpu_loader`` over ``devices``, in turn.

    Args:
        cpu_loader: iterable over batches: tensors in any nested containers; other values are not changed.
        devices: the i-th batch goes to ``devices[i % len(devices)]``. An incomplete last round is dropped.
        batchdim: ignored, for compatibility.
        batches_per_execution: batches per barrier.
        loader_prefetch_size: batches that wait on the host, per device.
        device_prefetch_size: batches that wait on each device, and that are uploaded together.
        host_to_device_transfer_threads: threads that upload, per device. The order is kept.
        input_sharding: a ``ShardingSpec`` for the tensors it fits, or a dictionary of them by the batches' keys.
    """

    def __init__(
        self,
        cpu_loader: Iterable[Any],
        devices: Sequence[torch.device | str],
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding: Any = None,
    ) -> None:
        self._cpu_loader: Any = cpu_loader
        self._devices = [_indexed(device) for device in devices]
        self._batchdim = batchdim
        self.batches_per_execution = batches_per_execution
        threads = max(host_to_device_transfer_threads, 1)
        self._lanes = {
            device: _Lane(device, loader_prefetch_size, device_prefetch_size, threads) for device in self._devices
        }
        lanes = list(self._lanes.values())
        # The threads refer to the lanes and not to this object, so that it can be deleted while they wait.
        work: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(_read, (cpu_loader, lanes))]
        work += [(_upload, (lane, input_sharding)) for lane in lanes for _ in range(threads)]
        self._threads = [
            threading.Thread(target=target, args=args, name=f"xlaprof loader {target.__name__[1:]}", daemon=True)
            for target, args in work
        ]
        self._abandon = weakref.finalize(self, _close, lanes)
        for thread in self._threads:
            thread.start()

    def per_device_loader(self, device: torch.device | str) -> PerDeviceLoader:
        """The iterator over the batches that go to ``device``, one of those this was made with."""
        return PerDeviceLoader(self, _indexed(device))

    def per_device_samples(self) -> int:
        """Number of batches of each device. Raises ``TypeError`` where the loader has no length."""
        return len(self._cpu_loader) // len(self._devices)

    def next_item(self, device: torch.device) -> Any:
        """The next batch on ``device``; ``None`` after the last. Raises what the loader or the upload raised."""
        lane = self._lanes[device]
        rec = recorder.active
        if rec is None or lane.ready():
            batch = lane.get()
        else:
            start = perf_counter_ns()
            frames = stacks.user_frames()
            with aside():
                batch = lane.get()
            rec.emit(events.DataWait(start, perf_counter_ns() - start, rec.stack(frames), rec.thread()))
            clock.leave(frames, lane.tape.node)
        return None if batch is _END else batch

    def close(self) -> None:
        """Stop: a waiting iterator ends, and the threads have ended when this returns."""
        self._abandon()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()


class MpDeviceLoader:
    """Iterates over ``loader``, with the batches on ``device``.

    ``kwargs`` are those of :class:`ParallelLoader`.
    """

    def __init__(self, loader: Iterable[Any], device: torch.device | str, **kwargs: Any) -> None:
        self._loader: Any = loader
        self._device = device
        self._parallel_loader_kwargs = kwargs
        self._last: weakref.ref[ParallelLoader] | None = None

    def __iter__(self) -> Iterator[Any]:
        parallel = ParallelLoader(self._loader, [self._device], **self._parallel_loader_kwargs)
        self._last = weakref.ref(parallel)
        return parallel.per_device_loader(self._device)

    def __len__(self) -> int:
        return len(self._loader)

    def close(self) -> None:
        """Stop the last iteration; its threads have ended when this returns."""
        last = self._last() if self._last is not None else None
        if last is not None:
            last.close()


def send(data: Any, tape: Tape, sharding: Any = None) -> Any:
    """``data`` with its host tensors on ``tape``'s device, by one transfer, laid out by ``sharding`` where it fits."""

    def move(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        if sharding is not None:
            _require_divisible(sharding, tensors)
        return list(host.send(tape, tensors, sharding))

    return nested.converted(data, _on_host, move)


def _send_batches(batches: list[Any], tape: Tape, sharding: Any) -> list[Any]:
    if not isinstance(sharding, dict):
        return list(send(batches, tape, sharding))
    for batch in batches:
        if not isinstance(batch, dict):
            raise ValueError("input batch should be a dict when input sharding is a dict.")
        missing = [key for key in batch if key not in sharding]
        if missing:
            raise KeyError(f"Keys: {missing} are missing from input_sharding.")
    return [{key: send(value, tape, sharding[key]) for key, value in batch.items()} for batch in batches]


def _require_divisible(sharding: Any, tensors: list[torch.Tensor]) -> None:
    if not getattr(sharding, "minibatch", False):
        return
    count = len(tapes.devices())
    for tensor in tensors:
        if tensor.ndim and tensor.shape[0] % count:
            raise RuntimeError(
                "When minibatch is configured, the per-host batch size must be divisible by local runtime device "
                f"count. Per host input data shape = {tensor.shape}, local_runtime_device_count = {count}"
            )


def _on_host(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "cpu"


def _indexed(device: torch.device | str) -> torch.device:
    return tapes.of_device(torch.device(device)).torch_device


def _step_was_marked() -> bool:
    marked = barriers.get_tracer_marked_step()
    if marked:
        barriers.set_tracer_marked_step(False)
    return marked


# -- the threads ---------------------------------------------------------------------------------------------


def _read(loader: Iterable[Any], lanes: list[_Lane]) -> None:
    """Distribute the user's batches over the lanes."""
    error: BaseException | None = None
    try:
        batches = iter(loader)
        while True:
            group = []
            for _ in lanes:
                with Trace("cpu_loader.next"):
                    batch = next(batches, _END)
                if batch is _END:
                    return
                group.append(batch)
            if not all(lane.on_host.put(batch) for lane, batch in zip(lanes, group, strict=True)):
                return
    except BaseException as raised:
        error = raised
    finally:
        batches = None  # type: ignore[assignment]  # a loader's worker processes end here, on their own thread
        for lane in lanes:
            lane.on_host.finish(error)
        del error


def _upload(lane: _Lane, sharding: Any) -> None:
    """Bring a lane's batches to its device, group by group."""
    while (taken := lane.take()) is not None:
        group, batches = taken
        try:
            with torch.no_grad(), Trace("cpu_data_to_xla_device"):
                group.set_result(_send_batches(batches, lane.tape, sharding))
        except BaseException as error:
            group.set_exception(error)
            lane.on_host.close()
            return
        del taken, group, batches  # before the wait for the next


def _close(lanes: list[_Lane]) -> None:
    for lane in lanes:
        lane.close()
