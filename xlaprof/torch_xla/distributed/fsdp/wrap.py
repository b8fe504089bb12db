"""``torch_xla.distributed.fsdp.wrap``: which modules are wrapped. PyTorch's own, of which PyTorch/XLA has a copy."""

from xlaprof.torch_xla._served import served as _served

_PYTORCH = "torch.distributed.fsdp.wrap"
_HOMES = {
    **dict.fromkeys(
        (
            "always_wrap_policy",
            "lambda_auto_wrap_policy",
            "size_based_auto_wrap_policy",
            "transformer_auto_wrap_policy",
        ),
        _PYTORCH,
    ),
    "recursive_wrap": f"{_PYTORCH}:_recursive_wrap",
}

__getattr__ = _served(__name__, _HOMES)
