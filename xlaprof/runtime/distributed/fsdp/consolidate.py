"""Joining the ranks' checkpoints: the model's ``state_dict``, as if it had never been divided."""

from __future__ import annotations

import argparse
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from glob import glob
from typing import Any

import torch

State = Mapping[str, torch.Tensor]


def original(name: str) -> str:
    """``name`` without the wrappers' prefixes."""
    return name.replace("_fsdp_wrapped_module.", "").replace("_fpw_module.", "")


def consolidate_sharded_state_dicts(
    state_dict_list: Sequence[State], shard_metadata: dict[str, Any]
) -> OrderedDict[str, torch.Tensor]:
    """The undivided module's state from each rank's ``state_dict()``, in the order of the ranks.

    ``shard_metadata`` is any rank's ``get_shard_metadata()``. Buffers are rank 0's.
    """
    assert len(state_dict_list) == shard_metadata["world_size"], (
        f"{len(state_dict_list)} state dicts of {shard_metadata['world_size']} ranks"
    )
    buffers = shard_metadata.get("buffer_info", {})
    whole: OrderedDict[str, torch.Tensor] = OrderedDict()
    for name, value in state_dict_list[0].items():
        parts = name.split(".")
        at = next((i for i, part in enumerate(parts) if part.startswith("_fsdp_shard")), None)
        if at is None:
            before = buffers.get(name)
            whole[name] = value.to(before["_orig_dtype"]) if before else value
            continue
        prefix, suffix = ".".join(parts[:at]), ".".join(parts[at:])
        info = shard_metadata["shard_info"][prefix][suffix]
        joined = _joined([state[name] for state in state_dict_list], info["_orig_size"])
        whole[f"{prefix}.{info['_orig_name']}" if prefix else info["_orig_name"]] = joined
    for name in [name for name in whole if "_fsdp_wrapped_module.flat_param_" in name]:
        flat = whole.pop(name)
        names, shapes, sizes = shard_metadata["flatten_info"][name]
        prefix = name.rpartition(".")[0]
        for inner, shape, part in zip(names, shapes, flat.split(sizes), strict=True):
            whole[f"{prefix}.{inner}"] = part.view(shape)
    return OrderedDict((original(name), value) for name, value in whole.items())


def _joined(shards: Sequence[torch.Tensor], size: Sequence[int]) -> torch.Tensor:
    value = torch.cat(list(shards))
    if value.ndim == 1:
        return value[: math.prod(size)].view(list(size))
    return value[: size[0]]  # divided in the first dimension


def consolidate_sharded_model_checkpoints(
    ckpt_prefix: str, ckpt_suffix: str = "*.pth", save_path: str = "", save_model: bool = True
) -> tuple[OrderedDict[str, torch.Tensor], str | None]:
    """The undivided module's state from the files ``ckpt_prefix + ckpt_suffix``, a pattern that matches one per rank.

    Each has ``{"model": model.state_dict(), "shard_metadata": model.get_shard_metadata()}``. With ``save_model`` the
    model's state is written, as ``{"model": ...}``, to ``save_path`` or ``ckpt_prefix + "_consolidated.pth"``. Returns
    the state and that path.
    """
    pattern = ckpt_prefix + ckpt_suffix
    paths = glob(pattern)
    assert paths, f"Cannot find any files matching {pattern}."
    print(f"found {len(paths)} checkpoint files in {pattern}")
    found = [(torch.load(path, map_location="cpu"), path) for path in paths]
    found.sort(key=lambda one: int(one[0]["shard_metadata"]["rank"]))
    for rank, (checkpoint, path) in enumerate(found):
        metadata = checkpoint["shard_metadata"]
        assert metadata["world_size"] == len(found), (
            f"Expecting {metadata['world_size']} files (based on metadata in {path}) but got {len(found)} files. "
            f"Please check if you have missing or unexpected files in {pattern}."
        )
        assert metadata["rank"] == rank, (
            f"Expecting rank {rank} but {path} is of rank {metadata['rank']} (out of {len(found)} files). "
            f"Please check if you have missing or unexpected files in {pattern}."
        )
    state = consolidate_sharded_state_dicts(
        [checkpoint["model"] for checkpoint, _ in found], found[0][0]["shard_metadata"]
    )
    if not save_model:
        return state, None
    target = save_path or ckpt_prefix + "_consolidated.pth"
    torch.save({"model": state}, target)
    print(f"saved consolidated model to {target}")
    return state, target


def main() -> None:
    """``python -m torch_xla.distributed.fsdp.consolidate_sharded_ckpts --ckpt_prefix run/final``."""
    parser = argparse.ArgumentParser(description="Join the checkpoints of all ranks of a fully sharded model.")
    parser.add_argument("--ckpt_prefix", required=True, help="what the files' paths begin with")
    parser.add_argument("--ckpt_suffix", default="*.pth", help="what they end with, a pattern (%(default)s)")
    parser.add_argument("--save_path", default="", help="where to (the prefix, and _consolidated.pth)")
    args = parser.parse_args()
    consolidate_sharded_model_checkpoints(args.ckpt_prefix, args.ckpt_suffix, args.save_path)
