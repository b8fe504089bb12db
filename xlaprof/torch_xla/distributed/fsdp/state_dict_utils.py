"""``torch_xla.distributed.fsdp.state_dict_utils``."""

from xlaprof.runtime.distributed.fsdp import consolidate_sharded_model_checkpoints, consolidate_sharded_state_dicts

__all__ = ["consolidate_sharded_model_checkpoints", "consolidate_sharded_state_dicts"]
