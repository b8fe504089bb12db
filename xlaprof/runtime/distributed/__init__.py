"""Several processes, one device each: launch, rendezvous, collectives, failures."""

from __future__ import annotations

from xlaprof.runtime.execution import build as _build
from xlaprof.runtime.execution import failures as _failures
from xlaprof.runtime.instruments import graph_dump as _graph_dump
from xlaprof.runtime.modes import barriers as _barriers

from . import backend
from .backend import ProcessGroupXla
from .collectives import (
    REDUCE_AND,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_MUL,
    REDUCE_OR,
    REDUCE_SUM,
    CoalescingBuckets,
    all_gather,
    all_gather_bucketized,
    all_reduce,
    all_reduce_bucketized_gradients,
    all_to_all,
    broadcast_master_param,
    collective_broadcast,
    collective_permute,
    recv,
    reduce_gradients,
    reduce_scatter,
    reduce_scatter_bucketized,
    send,
)
from .job.faults import RankFailure
from .job.faults import of_collective as _of_collective
from .job.launch import MpModelWrapper, MpSerialExecutor, launch, run_multiprocess, spawn
from .job.rendezvous import (
    exchange,
    exchange_objects,
    is_master_ordinal,
    master_print,
    mesh_reduce,
    rendezvous,
    xla_rendezvous,
)
from .job.world import (
    World,
    WorldError,
    addressable_device_count,
    get_master_ip,
    global_device_count,
    global_ordinal,
    host_index,
    join,
    leave,
    local_device_count,
    local_ordinal,
    local_process_count,
    process_count,
    process_index,
    world_size,
)
from .programs.placement import SharedProgram as _SharedProgram

# Hooks of lower layers, for programs of several processes.
_barriers.reduce_gradients = reduce_gradients
_failures.failed_rank = _of_collective
_graph_dump.ordinal = lambda tape: global_ordinal() if world_size() > 1 else tape.index
_build.place_collectives = _SharedProgram
