"""When a result on ``xla`` agrees with the CPU's: PyTorch's own tolerances.

An element agrees within ``torch.testing.assert_close``'s tolerance for its dtype, widened by what the entry of the
OpInfo database asks for itself (``toleranceOverride``). Where that is missed, PyTorch's compiler tests have a second
rule (``torch._dynamo.utils.same``): the result may be no further from the float64 truth than a small multiple of the
CPU's own distance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import toleranceOverride

#: memory nobody wrote has no right values
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}
#: vectors that are right with either sign (or phase): magnitudes are compared
UP_TO_SIGN = {
    "linalg.eigh",
    "linalg.eig",
    "linalg.svd",
    "svd",
    "svd_lowrank",
    "pca_lowrank",
    "linalg.qr",
    "qr",
    "geqrf",
}
#: operators that may return the index of any of equal elements -> the place of ``dim`` among their arguments
ANY_OF_EQUALS = {"sort": 0, "argsort": 0, "kthvalue": 1, "topk": 1, "mode": 0}
#: what these save for their gradient is of the input's dtype on the CPU, of the dtype they compute in elsewhere
SAVED_WIDER = {"native_layer_norm", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"}


@dataclass(frozen=True)
class Comparison:
    """How the results of one entry in one dtype are compared; not ``strict``: shapes and dtypes only."""

    name: str
    entry: Any
    dtype: torch.dtype
    strict: bool
    sample: Any = None
    gradients: bool = False


def agree(how: Comparison, got: Any, expected: Any, truth: Callable[[], Any] | None) -> None:
    """Raise ``AssertionError``, saying where, unless ``got`` is what the CPU ``expected``.

    ``truth`` computes the float64 values, where there are any.
    """
    ours, theirs = _determined(how, _leaves(got)), _determined(how, _leaves(expected))
    assert len(ours) == len(theirs), f"{len(ours)} results instead of {len(theirs)}"
    exact: list[Any] = []
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not isinstance(b, torch.Tensor):
            assert not how.strict or a == b or (a != a and b != b) or _near(a, b), f"result {i}: {a} instead of {b}"
            continue
        if i and how.name in SAVED_WIDER and (a.dtype, b.dtype.itemsize) == (torch.float32, 2):
            a = a.to(b.dtype)
        assert a.dtype == b.dtype, f"result {i}: {a.dtype} instead of {b.dtype}"
        assert a.shape == b.shape, f"result {i}: shape {tuple(a.shape)} instead of {tuple(b.shape)}"
        if not how.strict or how.name in UNINITIALISED:
            continue
        a, b = _plain(how, a), _plain(how, b)
        if how.gradients or i == len(theirs) - 1:
            a, b = _found(how, a), _found(how, b)
        rtol, atol = tolerances(how.entry, b.dtype)
        if how.gradients and how.entry.name in UP_TO_SIGN and b.numel():
            # Gradients through factors of a free sign have no one float64 truth: errors grow with the largest element.
            atol *= max(1.0, b.abs().nan_to_num(0, 0, 0).max().item())
        try:
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            if truth is None or not (b.is_floating_point() or b.is_complex()):
                raise AssertionError(f"result {i}: {error}") from None
            if not exact:
                exact = _determined(how, _truth(truth, len(theirs)))
            if exact[i] is None or not as_near(a, b, _plain(how, exact[i])):
                raise AssertionError(f"result {i}: {error}") from None


def _found(how: Comparison, result: torch.Tensor) -> torch.Tensor:
    """What is left to compare where any of equal elements may be named.

    Of indices the elements they name; of a gradient its values, wherever among the equals they went. Other results as
    they are.
    """
    place = ANY_OF_EQUALS.get(how.entry.name)
    sample = how.sample
    if place is None or sample is None or sample.kwargs.get("stable") or not sample.input.ndim:
        return result
    x = sample.input.detach()
    dim = sample.args[place] if len(sample.args) > place else sample.kwargs.get("dim", -1)
    if how.gradients:
        return result.sort(dim=dim).values
    if result.dtype is not torch.int64 or bool(((result < 0) | (result >= x.shape[dim])).any()):
        return result
    return x.gather(dim, result if result.ndim == x.ndim else result.unsqueeze(dim))


def _determined(how: Comparison, leaves: list[Any]) -> list[Any]:
    """Without the singular vectors of no singular value (``full_matrices``): any orthonormal ones will do."""
    if how.entry.name not in ("linalg.svd", "svd") or len(leaves) != 3 or any(t is None for t in leaves):
        return leaves
    u, s, v = leaves
    if u.ndim != s.ndim + 1:
        return leaves
    k = s.shape[-1]
    return [u[..., :k], s, v[..., :k, :] if how.entry.name == "linalg.svd" else v[..., :k]]


def _truth(truth: Callable[[], Any], n: int) -> list[Any]:
    try:
        leaves = _leaves(truth())
    except Exception:  # the operator has no float64 form: the first rule alone decides
        return [None] * n
    return leaves if len(leaves) == n else [None] * n


def as_near(ours: torch.Tensor, theirs: torch.Tensor, truth: torch.Tensor) -> bool:
    """The rule of ``torch._dynamo.utils.same``: root mean square error within a multiple of PyTorch's own."""
    if ours.shape != truth.shape:
        return False
    wide = torch.complex128 if truth.is_complex() else torch.float64
    a, b, t = ours.to(wide), theirs.to(wide), truth.to(wide)
    told, known = torch.isfinite(b.abs()), torch.isfinite(t.abs())
    alike = (a == b) | (a.isnan() & b.isnan())
    # What the CPU overflows at, or has no number for, may be better here: then the truth decides.
    rtol, atol = default_tolerances(ours.dtype)
    scale = max(1.0, t[known].abs().max().item() if bool(known.any()) else 1.0)
    low = ours.dtype in (torch.float16, torch.bfloat16)
    multiplier = 3.0 if low or a.numel() <= 10 else 2.0
    near = max(atol, multiplier * rtol * scale)
    rounded = truth.to(ours.dtype).to(wide)  # which may overflow
    better = torch.isclose(a, rounded, rtol=rtol, atol=near, equal_nan=True) & ~(told & known)
    both = told & known & torch.isfinite(a.abs())
    if not bool((alike | better | both).all()):
        return False
    a, b, t = a[both], b[both], t[both]
    slack = 5e-4 if low else 1e-6  # half a unit in float16's last place
    return bool(_rms(a - t) <= multiplier * _rms(b - t) + slack * scale)


def _rms(x: torch.Tensor) -> float:
    return float(x.abs().pow(2).mean().sqrt()) if x.numel() else 0.0


def tolerances(entry: Any, dtype: torch.dtype) -> tuple[float, float]:
    """``(rtol, atol)`` for results of ``dtype``."""
    rtol, atol = default_tolerances(dtype)
    own = _overrides(entry).get(dtype)
    if own is not None:
        rtol, atol = max(rtol, own[0]), max(atol, own[1])
    return rtol, atol


def _overrides(entry: Any) -> dict[torch.dtype, tuple[float, float]]:
    found: dict[torch.dtype, tuple[float, float]] = {}
    for info in entry.decorators:
        for decorator in getattr(info, "decorators", [info]):
            if isinstance(decorator, toleranceOverride):
                for dtype, tolerance in decorator.d.items():
                    rtol, atol = found.get(dtype, (0.0, 0.0))
                    found[dtype] = (max(rtol, tolerance.rtol), max(atol, tolerance.atol))
    return found


def _plain(how: Comparison, t: torch.Tensor) -> torch.Tensor:
    t = t.detach().resolve_conj().resolve_neg()
    if t.layout is not torch.strided:
        t = t.to_dense()
    return t.abs() if how.entry.name in UP_TO_SIGN and t.dtype is not torch.bool else t


def _near(a: Any, b: Any) -> bool:
    return isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-5 * max(1.0, abs(b))


def _leaves(value: Any) -> list[Any]:
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if leaf is not None]
