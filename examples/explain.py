"""What torch.compile makes of a function, call by call, without touching what the program has compiled.

python examples/explain.py
"""

import torch

import xlaprof


def normalize(batch: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    mean = batch.mean(dim=-1, keepdim=True)
    if mean.abs().max() > 1e3:  # decided by a value: the graph breaks here
        batch = batch / mean
    return (batch - mean) * scale


def main() -> str:
    batches = torch.ones(8, 16), torch.ones(8, 16), torch.ones(8, 16, dtype=torch.float64)
    return str(xlaprof.explain(normalize, *((batch,) for batch in batches), (batches[0], 2.0), backend="eager"))


if __name__ == "__main__":
    print(main())
