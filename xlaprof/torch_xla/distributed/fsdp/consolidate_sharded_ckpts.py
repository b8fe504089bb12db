"""``python -m torch_xla.distributed.fsdp.consolidate_sharded_ckpts --ckpt_prefix run/final``."""

from xlaprof.runtime.distributed.fsdp.consolidate import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
