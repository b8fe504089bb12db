"""A service that must not compile while it serves: what would be compiled is refused, with the reason.

python examples/frozen.py
"""

import torch

import xlaprof

BUCKETS = (32, 64, 128)


@torch.compile(backend="eager", dynamic=False)  # any backend
def score(tokens: torch.Tensor) -> torch.Tensor:
    return (tokens.float().cos() * (tokens > 0)).sum()


def padded(tokens: torch.Tensor) -> torch.Tensor:
    size = next(bucket for bucket in BUCKETS if len(tokens) <= bucket)
    return torch.nn.functional.pad(tokens, (0, size - len(tokens)))


def serve() -> list[str]:
    """What was refused."""
    refused = []
    with xlaprof.frozen(after_steps=len(BUCKETS), on_recompile="raise") as guard:
        for bucket in BUCKETS:  # warm-up
            score(torch.ones(bucket, dtype=torch.int64))
            guard.step()
        for request in (7, 100, 33, 50, 128):
            tokens = torch.ones(request, dtype=torch.int64)
            try:
                score(tokens if request == 50 else padded(tokens))  # one path forgot to pad
            except xlaprof.RecompileError as error:
                refused.append(str(error))
            guard.step()
    return refused


if __name__ == "__main__":
    for one in serve():
        print(one)
