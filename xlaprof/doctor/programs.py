"""A graph and its inputs as a program that runs alone, with PyTorch and nothing else."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.debug_utils import InputWriter, NNModuleToString, extra_imports, generate_config_string
from torch.fx.experimental.symbolic_shapes import fx_placeholder_targets

_PROGRAM = '''"""{about}

Written by xlaprof doctor from {where}. The inputs are in the folder beside this file. Exit code 1: it still goes wrong.
"""

import math
import os
import sys
from math import inf

import torch
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config
import torch.fx as fx
import torch.fx.experimental._config
from torch import device, tensor
from torch._dynamo.debug_utils import InputReader
from torch._dynamo.utils import clone_input
from torch.utils._pytree import tree_leaves

{config}
{imports}
BACKEND = {backend!r}
ALLOWED = {allowed!r}  # relative error

{module}

{inputs}


def copied(one):
    return clone_input(one).detach().requires_grad_(one.requires_grad)


def run(model, inputs):
    """Outputs, and gradients of the inputs, from the same random state each time."""
    torch.manual_seed(0)
    given = [copied(one) if torch.is_tensor(one) else one for one in inputs]
    outputs = [one for one in tree_leaves(model(*given)) if torch.is_tensor(one)]
    wanted = [one for one in outputs if one.requires_grad and not one.is_complex()]
    weights = [torch.cos(torch.arange(one.numel(), dtype=torch.float64)).reshape(one.shape).to(one) for one in wanted]
    if wanted:
        torch.autograd.backward(wanted, weights)
    gradients = [one.grad for one in given if torch.is_tensor(one) and one.grad is not None]
    return [one.detach() for one in outputs], gradients


def size(one):
    return (one.to(torch.complex128).abs() ** 2).mean().sqrt().item() if one.numel() else 0.0


def distances(some, truths):
    """Root mean squares of errors, each by that of the truth, or by a thousandth of the largest of them."""
    least = max(map(size, truths), default=0.0) / 1000
    for one, truth in zip(some, truths):
        error = size(one.to(torch.complex128) - truth)
        yield error / max(size(truth), least) if error else 0.0


def main():
    reader = InputReader(save_dir=os.path.dirname(os.path.abspath(__file__)))
    load_args(reader)
    eager = run(Repro(), reader.args)
    compiled = run(torch.compile(Repro(), backend=BACKEND), reader.args)
    worst = max([one for pair in zip(compiled, eager) for one in distances(*pair)], default=0.0)
    print(f"compiled with backend={{BACKEND!r}}: relative error {{worst:.3g}}, {{ALLOWED:g}} is allowed")
    return int(not worst <= ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
'''


def write_program(
    file: str, graph: torch.fx.GraphModule, inputs: Sequence[Any], backend: str, about: str, where: str, allowed: float
) -> None:
    """Write ``graph`` on ``inputs`` as the program ``file``; the values of its inputs go into the file's folder.

    ``allowed``: the relative error up to which the compiled result is right. Raises whatever PyTorch raises for graphs
    and inputs that it cannot write down.
    """
    plain = [one.node.hint if isinstance(one, torch.SymInt) else one for one in inputs]
    writer = InputWriter(os.path.dirname(file), stable_hash=True)
    for name, one in zip(fx_placeholder_targets(graph), plain, strict=True):
        if isinstance(one, torch.Tensor):
            writer.tensor(name, one)
        elif isinstance(one, int):
            writer.symint(name, one)
        else:
            raise TypeError(f"an input is neither a tensor nor a whole number, but {type(one).__name__}")
    text = _PROGRAM.format(
        about=about,
        where=where,
        config=generate_config_string(),
        imports=extra_imports,
        backend=backend,
        module=textwrap.dedent(NNModuleToString.convert(graph)),
        inputs="\n".join(writer.lines()),
        allowed=allowed,
    )
    with open(file, "w", encoding="utf-8") as out:
        out.write(text)
