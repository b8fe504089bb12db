"""``torch_xla.amp.grad_scaler``."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from xlaprof.torch_xla import torch_xla as _top


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("xla")``, with two ways to step that read nothing from the device.

    An optimizer whose ``step`` takes ``found_inf`` (:mod:`.syncfree`) gets it, and skips the step where it is not 0.
    With ``use_zero_grad`` any other optimizer steps with zero gradients where one was not finite. Otherwise there is a
    barrier and one read per step.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        use_zero_grad: bool = False,
    ) -> None:
        super().__init__(
            "xla",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )
        self.use_zero_grad = use_zero_grad

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        found = list(optimizer_state["found_inf_per_device"].values())
        if "found_inf" in inspect.signature(optimizer.step).parameters:
            return optimizer.step(*args, found_inf=torch.stack(found).sum(), **kwargs)
        if self.use_zero_grad:
            factor = (torch.stack(found).sum() == 0).float()
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.nan_to_num_()
                        p.grad.mul_(factor)
            return optimizer.step(*args, **kwargs)
        _top.sync()
        return None if sum(v.item() for v in found) else optimizer.step(*args, **kwargs)
