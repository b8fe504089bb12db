"""``torch.distributed`` with the backend ``"xla"``: importing this module registers it.

::

    dist.init_process_group("xla", init_method="xla://")    # or env://, under torchrun
    model = DistributedDataParallel(model.to("xla"), gradient_as_bucket_view=True)

A group's collectives are recorded (:mod:`.collectives`) and run inside the program of the graph they belong to; a
:class:`torch.distributed.Work` that is returned is done. All members of a group have to call it, other ranks need not.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

from xlaprof.runtime.execution import reads

from . import collectives, functional
from . import groups as _groups
from .job import world
from .job.rendezvous import exchange

_c10d: Any = _distributed_c10d  # its stubs do not describe subclasses in Python
_distributed: Any = dist

_REDUCTIONS = ("sum", "product", "band", "bor", "min", "max", "avg")
_barriers = itertools.count(1)


def _done(result: Any) -> Any:
    """A ``Work`` that has ended with ``result``."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(result)
    return _c10d._create_work_from_future(future)


class ProcessGroupXla(_c10d.ProcessGroup):  # type: ignore[misc]
    """A process group whose tensors are on ``xla``; host tensors are not supported."""

    def __init__(
        self, prefix_store: Any, rank: int, size: int, timeout: Any, ranks: Sequence[int] = (), options: Any = None
    ) -> None:
        super().__init__(rank, size)
        self.prefix_store = prefix_store
        self.timeout = timeout
        #: the groups of ranks that exchange: ``[]`` for one group of all
        self._mesh = _mesh(list(ranks), options)
        self._ranks = list(ranks) or list(range(size))

    def getBackendName(self) -> str:
        """``"xla"``."""
        return "xla"

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    @property
    def group_name(self) -> str:
        """The name ``torch.distributed`` gave it."""
        return self._group_name

    def _kind(self, op: Any) -> tuple[str, float]:
        name = next((name for name in _REDUCTIONS if op == getattr(dist.ReduceOp, name.upper())), None)
        if name is None:
            if op == dist.ReduceOp.BXOR:
                raise NotImplementedError(f"reduce op {op}")
            raise ValueError(f"Invalid reduce op {op}")
        return functional.reduction(name, _groups.normalized(self._mesh))

    @property
    def _shards(self) -> int:
        return len(self._mesh[0]) if self._mesh else self.size()

    # -- reductions -------------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        kind, scale = self._kind(dist.ReduceOp.SUM if opts is None else opts.reduceOp)
        collectives.all_reduce(kind, tensors, scale, self._mesh, pin_layout=False)
        return _done(tensors)

    def reduce(self, tensors: Any, opts: Any) -> Any:
        """All ranks reduce; only the root writes the result to its tensor."""
        kind, scale = self._kind(opts.reduceOp)
        for tensor in tensors:
            reduced = collectives.all_reduce(kind, tensor.detach(), scale, self._mesh, pin_layout=False)
            _run([reduced])
            if self.rank() == opts.rootRank:
                _write(tensor, reduced)
        return _done(tensors)

    def reduce_scatter(self, output_tensors: Any, input_tensors_list: Any, opts: Any) -> Any:
        for inputs, output in zip(input_tensors_list, output_tensors, strict=True):
            self._scatter_reduced(output, torch.cat(_alike(inputs)), opts)
        return _done(output_tensors)

    def reduce_scatter_coalesced(self, output_tensors: Any, input_tensors_list: Any, opts: Any) -> Any:
        kind, scale = self._kind(opts.reduceOp)
        inputs = [torch.cat(_alike(tensors)) for tensors in input_tensors_list]
        collectives.reduce_scatter(kind, inputs, scale, 0, self._shards, self._mesh, list(output_tensors), False)
        return _done(output_tensors)

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        for output, tensor in zip(outputs, inputs, strict=True):
            self._scatter_reduced(output, tensor, opts)
        return _done(outputs)

    def _reduce_scatter_base(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, opts: Any) -> Any:
        self._scatter_reduced(output_tensor, input_tensor, opts)
        return _done([output_tensor])

    def _scatter_reduced(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> None:
        kind, scale = self._kind(opts.reduceOp)
        collectives.reduce_scatter(kind, tensor, scale, 0, self._shards, self._mesh, output, pin_layout=False)

    # -- gathering --------------------------------------------------------------------------------

    def _gathered(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensors of all, stacked."""
        joined: torch.Tensor = collectives.all_gather(tensor.detach()[None], 0, self._mesh, pin_layout=False)
        return joined

    def _spread(self, outputs: Sequence[torch.Tensor], whole: torch.Tensor) -> None:
        """Write each rank's part of ``whole``; for a group larger than the world there are fewer parts than outputs."""
        if len(outputs) != self.size():
            raise ValueError(f"all_gather of {self.size()} ranks, but there are {len(outputs)} tensors to write to")
        for output, part in zip(outputs, whole.unbind(), strict=False):
            _write(output, part)

    def allgather(self, output_tensors_list: Any, input_tensors: Any, opts: Any = None) -> Any:
        for outputs, tensor in zip(output_tensors_list, input_tensors, strict=True):
            self._spread(outputs, self._gathered(tensor))
        return _done([tensor for outputs in output_tensors_list for tensor in outputs])

    def allgather_coalesced(self, output_tensors_list: Any, input_tensors: Any, opts: Any = None) -> Any:
        joined = collectives.all_gather([tensor.detach()[None] for tensor in input_tensors], 0, self._mesh, None, False)
        for outputs, whole in zip(output_tensors_list, joined, strict=True):
            self._spread(outputs, whole)
        return _done([tensor for outputs in output_tensors_list for tensor in outputs])

    def _allgather_base(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, opts: Any = None) -> Any:
        whole = self._gathered(input_tensor)
        joined = (self._shards * (input_tensor.shape[0] if input_tensor.ndim else 1), *input_tensor.shape[1:])
        if output_tensor.shape not in (whole.shape, joined):
            raise ValueError(
                f"Input shape {input_tensor.shape} and output shape {output_tensor.shape} are not compatible for "
                "all_gather_into_tensor. Input must be stacked or concatenated to create output."
            )
        _write(output_tensor, whole.reshape(output_tensor.shape))
        return _done([output_tensor])

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        for output, tensor in zip(outputs, inputs, strict=True):
            self._allgather_base(output, tensor)
        return _done(outputs)

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any) -> Any:
        """All ranks gather; only the root writes the parts to its tensors."""
        whole = self._gathered(input_tensors[0])
        _run([whole])
        if self.rank() == opts.rootRank:
            for output, part in zip(output_tensors[0], whole.unbind(), strict=True):
                _write(output, part)
        return _done(output_tensors)

    # -- broadcast, scatter, all-to-all -----------------------------------------------------------

    def broadcast(self, tensors: Any, opts: Any) -> Any:
        root = self._ranks[opts.rootRank]
        collectives.collective_broadcast(list(tensors), root, self._mesh, pin_layout=False)
        return _done(tensors)

    def scatter(self, output_tensors: Any, input_tensors_list: Any, opts: Any) -> Any:
        """The root's tensors are summed with the others' zeros."""
        (output,) = output_tensors
        if self.rank() == opts.rootRank:
            whole = torch.stack(_alike(input_tensors_list[0])).detach()
        else:
            whole = torch.zeros(self._shards, *output.shape, dtype=output.dtype, device=output.device)
        _run([whole])
        part = collectives.reduce_scatter("sum", whole, 1.0, 0, self._shards, self._mesh, pin_layout=False)
        _run([part])
        _write(output, part[0])
        return _done(output_tensors)

    def alltoall(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Any:
        whole = torch.stack(_alike(list(input_tensors)))
        parts = collectives.all_to_all(whole, 0, 0, self._shards, self._mesh, pin_layout=False)
        for output, part in zip(output_tensors, parts.unbind(), strict=True):
            _write(output, part)
        return _done(output_tensors)

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Any,
        input_split_sizes: Any,
        opts: Any = None,
    ) -> Any:
        if output_split_sizes or input_split_sizes:
            raise AssertionError("XLA doesn't support specifying non-empty output_split_sizes and input_split_sizes")
        _write(output, collectives.all_to_all(input.detach(), 0, 0, self._shards, self._mesh, pin_layout=False))
        return _done([output])

    # -- point to point ---------------------------------------------------------------------------

    def send(self, tensors: Any, dst_rank: int, tag: int = 0) -> Any:
        """Send ``tensors``; their pending computations run first."""
        for tensor in tensors:
            self._pass(tensor.detach(), self.rank(), dst_rank)
        return _done(tensors)

    def recv(self, out_tensors: Any, src_rank: int, tag: int = 0) -> Any:
        for tensor in out_tensors:
            _write(tensor, self._pass(torch.zeros_like(tensor, requires_grad=False), src_rank, self.rank()))
        return _done(out_tensors)

    def _pass(self, tensor: torch.Tensor, source: int, target: int) -> torch.Tensor:
        """Send ``tensor`` by a program of its own over the two ranks; return what the target receives."""
        pair = (self._ranks[source], self._ranks[target])
        _run([tensor])
        got: torch.Tensor = torch.ops.xla.collective_permute(
            [tensor], _groups.to_text((pair,)), _groups.to_text((tuple(sorted(pair)),))
        )[0]
        _run([got])
        return got

    # -- others -----------------------------------------------------------------------------------

    def barrier(self, opts: Any = None) -> Any:
        """The ranks wait for each other, on the host; their devices do not."""
        if world.link() is not None and self.size() > 1:
            exchange(f"torch.distributed.barrier {next(_barriers)} of {self.group_name}", b"", self._ranks)
        return _done([])

    def allreduce_coalesced(self, *args: Any) -> NoReturn:
        raise NotImplementedError("allreduce_coalesced: pass the list to xm.all_reduce")

    def recv_anysource(self, *args: Any) -> NoReturn:
        raise NotImplementedError("recv_anysource: a program knows whom it hears from; name src")

    def monitored_barrier(self, *args: Any) -> NoReturn:
        raise NotImplementedError("monitored_barrier: use xm.rendezvous, which says who does not come")

    def Options(self, *args: Any) -> NoReturn:
        raise NotImplementedError

    # torch 2.13's names
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base


def _write(target: torch.Tensor, value: torch.Tensor) -> None:
    with torch.no_grad():
        target.copy_(value)


def _run(tensors: list[torch.Tensor]) -> None:
    """Compute ``tensors`` now: operations that only some ranks record must not be part of a collective's program."""
    storages = [tensor._storage for tensor in tensors]  # type: ignore[attr-defined]
    for storage, array in zip(storages, reads.values(storages[0].tape, storages, ()), strict=True):
        reads.materialize(storage.tape, storage, array)


def _alike(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    for i, tensor in enumerate(tensors[1:]):
        if tensor.shape != tensors[0].shape:
            raise ValueError(f"Input {i + 1}'s shape is different from input 0: {tensor.shape} vs {tensors[0].shape}")
    return list(tensors)


# -- groups -------------------------------------------------------------------------------------------


def _mesh(ranks: list[int], options: Any) -> list[list[int]]:
    """The groups of a process group of ``ranks``, by PyTorch/XLA's rules (``xla_pg_options``: ``mesh``, ``spmd``)."""
    size = dist.group.WORLD.size() if dist.group.WORLD is not None else world.world_size()
    if not ranks or dist.group.WORLD is None:
        return []
    if len(ranks) == 1 and size > 1:
        return [[rank] for rank in range(size)]
    given = options.get("xla_pg_options", {}) if isinstance(options, dict) else {}
    if len(ranks) < size and given.get("mesh") is not None:
        return [list(group) for group in given["mesh"]]
    if len(ranks) < size and given.get("spmd"):
        return infer_mesh(ranks, size)
    return [ranks]


def infer_mesh(ranks: list[int], size: int) -> list[list[int]]:
    """The rows or columns of ``size`` ranks laid out as a rectangle in which ``ranks`` is a row or a column.

    ``[1, 5, 9]`` of 12 ranks is one of four columns. Raises ``ValueError`` where there is no such rectangle.
    """
    length = len(ranks)
    if size % length:
        raise ValueError(
            f"Given slice length doesn't equal to a side of a rectangle. World size: {size}, slice length: {length}"
        )
    count = size // length
    step = ranks[1] - ranks[0]
    if ranks != list(range(ranks[0], ranks[0] + step * length, step or 1)):
        raise ValueError(f"Given slice isn't a range with evenly distributed steps: {ranks}")
    if step == 1:
        mesh = [list(range(i * length, (i + 1) * length)) for i in range(count)]
    else:
        mesh = [list(range(i, size, count)) for i in range(count)]
    if ranks not in mesh:
        kind = "horizontal" if step == 1 else "vertical"
        raise ValueError(
            f"Given {kind} slice doesn't have a correct start or step: World size: {size}, slice length: {length}, "
            f"slice: {ranks}"
        )
    return mesh


def _create(
    backend: Any = None,
    options: Any = None,
    *,
    prefix_store: Any = None,
    rank: int = 0,
    size: int = 1,
    timeout: Any = None,
) -> ProcessGroupXla:
    """Called by ``torch.distributed`` for a new group, and with keywords like PyTorch/XLA's creator."""
    if backend is None:
        return ProcessGroupXla(prefix_store, rank, size, timeout)
    world.join()
    here = world.current()
    if dist.group.WORLD is None and backend.group_size > here.size:
        raise RuntimeError(
            f"init_process_group of {backend.group_size} ranks, but this process has joined a world of {here.size}: "
            "start the ranks with torchrun or launch(), before the xla device is used"
        )
    ranks = list(backend.global_ranks_in_group)
    return ProcessGroupXla(backend.store, backend.group_rank, backend.group_size, backend.timeout, ranks, options)


def _rendezvous(url: str, timeout: Any = None, **more: Any) -> Iterator[tuple[Any, int, int]]:
    """``init_method="xla://"``: the world this process belongs to, and its store."""
    here = world.join()
    store: Any = _c10d.HashStore() if here.size == 1 else world.store()
    yield _c10d.PrefixStore("torch.distributed", store), here.rank, here.size


def _register() -> None:
    if not hasattr(dist.Backend, "XLA"):
        dist.Backend.register_backend("xla", _create, extended_api=True, devices="xla")
    for scheme in ("xla", "pjrt"):
        with contextlib.suppress(RuntimeError):  # registered already
            _distributed.register_rendezvous_handler(scheme, _rendezvous)


_register()
