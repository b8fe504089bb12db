"""``torch_xla.distributed.data_parallel``, customarily ``dp``: one process, a thread for each of its devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import torch

from xlaprof.runtime.tape import tapes
from xlaprof.runtime.transfer.loader import ParallelLoader
from xlaprof.torch_xla import torch_xla as _top


class Context:
    """The state that the function of one device keeps from call to call."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def getattr_or(self, name: str, defval: Any) -> Any:
        """The attribute; a missing one is set to ``defval``, or to ``defval()`` if that is callable."""
        if getattr(self, name, None) is None:
            setattr(self, name, defval() if callable(defval) else defval)
        return getattr(self, name)


class DataParallel:
    """Copies of ``network`` (a module, or a function that makes one) on ``device_ids``, by default on all devices.

    Calling it with ``loop_fn(model, loader, device, context)`` runs that for each device in a thread of its own.
    """

    def __init__(
        self,
        network: torch.nn.Module | Callable[[], torch.nn.Module],
        device_ids: Iterable[torch.device | str] | None = None,
        batchdim: int = 0,
    ) -> None:
        #: the devices, and the copy of the network on each
        self.devices = [torch.device(d) for d in (_top.devices() if device_ids is None else device_ids)]
        self._batchdim = batchdim
        module = network if isinstance(network, torch.nn.Module) else network()
        self.models = [deepcopy(module).to(device) for device in self.devices] or [module]
        self._contexts = [Context(device) for device in self.devices or [torch.device("cpu")]]

    def __call__(self, loop_fn: Callable[..., Any], loader: Iterable[Any], **options: Any) -> list[Any]:
        """The results of ``loop_fn`` on each device. Raises the error of the first device that failed."""
        if not self.devices:
            return [loop_fn(self.models[0], loader, torch.device("cpu"), self._contexts[0])]
        parallel = ParallelLoader(loader, self.devices, batchdim=self._batchdim)

        def run(model: torch.nn.Module, device: torch.device, context: Context) -> Any:
            tapes.set_current(device)
            return loop_fn(model, parallel.per_device_loader(device), device, context)

        try:
            with ThreadPoolExecutor(len(self.devices)) as threads:
                return list(threads.map(run, self.models, self.devices, self._contexts))
        finally:
            parallel.close()
