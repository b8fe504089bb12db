"""One captured graph, checked where it is called for the first time: does the backend's code say what PyTorch says?

Both run on copies of the same inputs from the same random state, forward and backward, and once more in float64, which
tells an error from rounding: the compiled result may be as far from it as PyTorch's own, and some more
(``torch._dynamo.utils.same`` judges the same way).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch._dynamo.debug_utils import cast_to_fp64
from torch._dynamo.utils import clone_input
from torch.utils._pytree import tree_leaves

#: relative error that is always allowed, by the coarsest dtype that takes part
ALLOWED = {torch.float64: 1e-7, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
TIMES = 10.0  # PyTorch's own error, which is allowed too
MOST_INTEGERS = 0.01  # share that may differ: ties that rounding decides


class Difference(NamedTuple):
    """The worst of the results that differ by more than is allowed."""

    what: str  # "output 0", "gradient of input 2"
    error: float  # relative; inf where it cannot be measured
    eager: float  # PyTorch's own, by the same measure

    def __str__(self) -> str:
        if math.isinf(self.error):
            return self.what
        return f"{self.what} has a relative error of {self.error:.1e} (without torch.compile {self.eager:.1e})"


def difference(graph: torch.fx.GraphModule, compiled: Callable[..., Any], inputs: Sequence[Any]) -> Difference | None:
    """How far ``compiled`` is from ``graph`` on ``inputs``, which stay as they are; None: it says the same.

    Raises what ``graph`` itself raises in a second run, and what ``compiled`` raises.
    """
    devices = _devices(inputs)
    with torch.random.fork_rng(devices):  # each begins with the program's state, and leaves it
        plain = results_of(copy.deepcopy(graph), inputs)
    with torch.random.fork_rng(devices):
        theirs = results_of(compiled, inputs)
    truth: list[tuple[str, Any]] = []
    if not is_random(graph):
        try:
            exact, doubles = cast_to_fp64(copy.deepcopy(graph), copies(inputs))
            truth = results_of(exact, doubles)
        except Exception:  # whatever an operation says that has no float64: PyTorch's own result is the measure then
            truth = []
    if len(truth) != len(plain):
        truth = plain
    if len(theirs) != len(plain):
        return Difference(f"{len(theirs)} results, {len(plain)} without torch.compile", math.inf, 0.0)
    least = _least(truth)
    worst: Difference | None = None
    for (what, ours), (_, their), (_, exact_one) in zip(plain, theirs, truth, strict=True):
        found = _compare(what, ours, their, exact_one, least[_group(what)])
        if found is not None and (worst is None or found.error > worst.error):
            worst = found
    return worst


def difference_of(what: str, plain: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> Difference | None:
    """How far what a call returns is from what it returned in another run: ten times as much is allowed."""
    if len(plain) != len(theirs):
        return Difference(f"{what}: {len(theirs)} tensors, {len(plain)} without torch.compile", math.inf, 0.0)
    for one, other in zip(plain, theirs, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return Difference(f"{what} is {_kind(other)}, not {_kind(one)}", math.inf, 0.0)
        error = _distance(other, one)
        if error > 10 * ALLOWED.get(one.dtype, ALLOWED[torch.float32]):
            return Difference(what, error, 0.0)
    return None


def _compare(what: str, plain: Any, theirs: Any, truth: Any, least: float) -> Difference | None:
    if not isinstance(plain, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        same = plain == theirs or (plain != plain and theirs != theirs)
        return None if same else Difference(f"{what} is {theirs}, not {plain}", math.inf, 0.0)
    if plain.shape != theirs.shape or plain.dtype != theirs.dtype:
        return Difference(f"{what} is {_kind(theirs)}, not {_kind(plain)}", math.inf, 0.0)
    if not plain.numel():
        return None
    if not (plain.is_floating_point() or plain.is_complex()):
        share = float((plain != theirs).double().mean())
        differs = share > MOST_INTEGERS
        return Difference(f"{what} differs in {share:.0%} of its values", math.inf, 0.0) if differs else None
    error, eager = _distance(theirs, truth, least), _distance(plain, truth, least)
    coarsest = ALLOWED.get(plain.dtype, ALLOWED[torch.float32])
    return Difference(what, error, eager) if error > max(TIMES * eager, coarsest) else None


def _group(what: str) -> str:
    return what.partition(" ")[0]  # output, gradient, input


def _least(results: Sequence[tuple[str, Any]]) -> dict[str, float]:
    """A thousandth of the largest result, of outputs and of gradients: the gradient of a bias before a normalisation is
    nothing but rounding, of which everybody has another."""
    found: dict[str, float] = {}
    for what, one in results:
        size = _size(one) if isinstance(one, torch.Tensor) and one.numel() else 0.0
        found[_group(what)] = max(found.get(_group(what), 0.0), size / 1000)
    return found


def _size(one: torch.Tensor) -> float:
    finite = one.detach().cpu().to(torch.complex128)
    return float(finite[torch.isfinite(finite)].abs().square().mean().sqrt())


def _distance(one: torch.Tensor, truth: torch.Tensor, least: float = 0.0) -> float:
    """Root mean square of the error by that of the truth, ``least`` at least; what is not finite must be so in both."""
    wide = torch.complex128 if one.is_complex() else torch.float64
    a, b = one.detach().cpu().to(wide), truth.detach().cpu().to(wide)
    odd = ~torch.isfinite(a) | ~torch.isfinite(b)
    if bool((odd & ~((a == b) | (a.isnan() & b.isnan()))).any()):
        return math.inf
    a, b = a[~odd], b[~odd]
    if not a.numel():
        return 0.0
    error, size = float((a - b).abs().square().mean().sqrt()), max(float(b.abs().square().mean().sqrt()), least)
    return error / size if size else (0.0 if error < 1e-12 else math.inf)


def results_of(model: Callable[..., Any], inputs: Sequence[Any]) -> list[tuple[str, Any]]:
    """Outputs, gradients, and what was written into inputs."""
    given = copies(inputs)
    outputs = tree_leaves(model(*given))
    wanted = [one for one in outputs if isinstance(one, torch.Tensor) and one.requires_grad and not one.is_complex()]
    if wanted:
        torch.autograd.backward(wanted, [_weights(one) for one in wanted])
    found = [(f"output {n}", _kept(one)) for n, one in enumerate(outputs)]
    for n, one in enumerate(given):
        if isinstance(one, torch.Tensor):
            if one.grad is not None:
                found.append((f"gradient of input {n}", _kept(one.grad)))
            if not one.requires_grad:  # versions do not tell: kernels write running statistics without a new one
                found.append((f"input {n}, after the call,", _kept(one)))
    return found


def _kept(one: Any) -> Any:
    return one.detach().clone() if isinstance(one, torch.Tensor) else one


def allowed(inputs: Sequence[Any]) -> float:
    """The relative error that is always allowed where these take part."""
    floats = [one.dtype for one in inputs if isinstance(one, torch.Tensor) and one.is_floating_point()]
    return max([ALLOWED.get(dtype, ALLOWED[torch.float32]) for dtype in floats], default=ALLOWED[torch.float32])


def copies(inputs: Sequence[Any]) -> list[Any]:
    """Leaves with the same values and strides."""
    made = []
    for one in inputs:
        if isinstance(one, torch.Tensor):
            made.append(clone_input(one).detach().requires_grad_(one.requires_grad))  # its strides, too
        else:
            made.append(one)
    return made


def _weights(one: torch.Tensor) -> torch.Tensor:
    """A gradient that is the same in every run, and another for each value."""
    return torch.cos(torch.arange(one.numel(), dtype=torch.float64)).reshape(one.shape).to(one.device, one.dtype)


def is_random(graph: torch.fx.GraphModule) -> bool:
    """Does it draw random numbers? In float64 they would be others."""
    for node in graph.graph.nodes:
        name = getattr(node.target, "__name__", str(node.target)) if node.op.startswith("call") else ""
        if any(
            part in name for part in ("rand", "dropout", "bernoulli", "multinomial", "normal_", "uniform_", "attention")
        ):
            return True
    return False


def _devices(inputs: Sequence[Any]) -> list[int]:
    return sorted({one.device.index or 0 for one in inputs if isinstance(one, torch.Tensor) and one.is_cuda})


def _kind(one: torch.Tensor) -> str:
    return f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)}"
