"""The name under which a graph's program is kept between runs: a digest of all that decides what XLA makes of it."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import jax

from xlaprof.runtime import parity
from xlaprof.runtime.tape.graph import Graph
from xlaprof.runtime.tape.grow import Pseudo
from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.trie import Node

#: environment variables that XLA and its plugins read
_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_PLATFORMS", "XLA_HLO_DEBUG", "XLA_IR_DEBUG")
#: settings of jax that concern where it keeps or logs things, not what it makes
_BESIDE_THE_POINT = ("cache", "log", "dump", "profil", "traceback", "transfer_guard", "explain")


def says_all(graph: Graph) -> bool:
    """Is what ``graph`` computes decided by its hash: are there no functions over jax, no lowerings of others?"""
    return all(_says_all(node) for node in graph.nodes)


def name_of(graph: Graph, kind: str, device: jax.Device, donated: tuple[int, ...], options: dict[str, Any]) -> str:
    """The name of the program of ``kind`` ("graph", "eager") for ``device``, of a graph that :func:`says_all`."""
    settings = [name for name in jax.config.values if not any(word in name for word in _BESIDE_THE_POINT)]
    parts = [
        graph.hash,
        kind,
        _versions(),
        _machine(device.client),
        f"{device.platform}:{device.id} {device.device_kind}",
        repr(donated),
        repr(sorted(options.items())),
        repr(parity.strict),
        *(f"{name}={os.environ.get(name, '')}" for name in _VARIABLES),
        # The attributes, not the values: a context manager's setting counts.
        *(f"{name}={getattr(jax.config, name, None)!r}" for name in sorted(settings)),
    ]
    if os.environ.get("XLA_HLO_DEBUG") or os.environ.get("XLA_IR_DEBUG"):  # its text has the lines
        parts += [f"{frame.file}:{frame.line}" for node in graph.nodes for frame in node.frames[:1]]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


def _says_all(node: Node) -> bool:
    """Is what the operation computes decided by its name, and by a lowering of this package or of jax?"""
    op: Any = node.op
    if isinstance(op, Op):
        module = str(getattr(op.lowering, "__module__", ""))
        return module.startswith(("xlaprof.", "jax."))
    return isinstance(op, Pseudo) and op.says_all


@functools.cache
def _versions() -> str:
    """Of what lowers and compiles, and a digest of our own part in it."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    packages = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "jax", "jaxlib", "numpy")]
    return f"{', '.join(packages)}, {digest.hexdigest()}"


@functools.cache
def _machine(client: Any) -> str:
    """What XLA compiles for: on a CPU its instructions, elsewhere what the plugin says of itself."""
    said = f"{client.platform} {client.platform_version} {client.process_index()}"
    if client.platform != "cpu":
        return said
    try:
        flags = next(
            line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("flags", "Features"))
        )
    except (OSError, StopIteration):  # another system
        flags = platform.processor()
    return f"{said} {platform.machine()} {os.cpu_count()} {flags}"
