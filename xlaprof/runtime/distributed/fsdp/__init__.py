"""Fully sharded data parallelism among processes: each rank holds its part of the parameters, gradients and state."""

from .consolidate import consolidate_sharded_model_checkpoints, consolidate_sharded_state_dicts
from .wrapper import XlaFullyShardedDataParallel
