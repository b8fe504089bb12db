"""What TorchTPU writes into PyTorch's structured trace, by the schema of torch-tpu 0.2.0: no log of a TPU was at hand.

Of each batch there are a moment (``chromium_event``), the graph and its StableHLO; the head lines of a file are those
that PyTorch writes.
"""

from __future__ import annotations

import json
from typing import Any

Record = tuple[dict[str, Any], str | None]
NAME = "torchtpu_eager/AddTensor"
UNIX_US = 1_790_000_000_000_000


def graph(reason: str, sizes: str = "8,4", line: int = 12) -> str:
    """A graph of three operations, two of them with the user's line."""
    return (
        f"# Graph: 3 ops, 2 inputs, reason: {reason}\n"
        f"v0 = MatMul(in0: f32[{sizes}], in1: f32[4,4])    # /home/me/train.py:{line} in step\n"
        f"v1 = Relu(v0)\n"
        f"v2 = AddTensor(v1, v1)    # /home/me/train.py:{line + 1} in step\n"
        "return v2\n"
    )


def batch(
    reason: str = "item()",
    hit: bool = True,
    *,
    at_ms: float = 0,
    ms: float = 1,
    text: str | None = None,
    failed: bool = False,
    name: str = NAME,
    unix_us: float = UNIX_US,
) -> list[Record]:
    """The records of one batch, in TorchTPU's order."""
    args = {"cache_hit": hit, "compile_failed": failed, "reason": reason}
    moment = {"name": name, "ph": "X", "ts": unix_us + at_ms * 1e3, "dur": ms * 1e3, "cat": "torchtpu_eager"}
    payload = json.dumps({**moment, "pid": 7, "tid": 0, "args": args}, separators=(",", ":"))
    said = {"encoding": "string", "op_name": name, "cache_hit": hit, "compile_failed": failed, "reason": reason}
    return [
        ({"chromium_event": {}, "has_payload": "0"}, payload),
        ({"artifact": {"name": "torchtpu_eager_aten_graph", **said}}, graph(reason) if text is None else text),
        ({"artifact": {"name": "torchtpu_eager_stablehlo", **said}}, "module {\n}\n"),
    ]


def file(records: list[Record]) -> str:
    """The records as a file of TORCH_TRACE's."""
    out = []
    for metadata, payload in records:
        out.append(f"V1120 09:52:41.719000 4242 torch/_logging/structured.py:28] {json.dumps(metadata)}")
        out += [f"\t{line}" for line in payload.split("\n")] if payload is not None else []
    return "\n".join(out) + "\n"
