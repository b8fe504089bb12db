"""One record of Dynamo's structured trace, parsed: a pure function of its metadata and its payload.

The records of a running process and the lines of a TORCH_TRACE file are the same data. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, NamedTuple

from xlaprof.events import DynamoCompile

from .breaks import Break, parse_break, parse_failure, user_name
from .guards import Reason, parse_reason
from .inductor import cache_key


class Broke(NamedTuple):
    """Tracing met something that cut the graph."""

    compile: str
    found: Break
    raised: bool = False  # as an error, which repeats the break before it if there was one


class Specialized(NamedTuple):
    """The code made a constant of a size, or number, that was a variable."""

    compile: str
    sources: tuple[str, ...]  # expressions of the size: "L['x'].size()[0]"
    frames: tuple[tuple[int, int, str], ...]  # number of the file's name, line and function; outermost first


class Recompiles(NamedTuple):
    """Why no version that was compiled before could be used: of each, the newest first, the guard that failed."""

    compile: str
    reasons: tuple[Reason, ...]


class Compiled(NamedTuple):
    """One attempt at a frame (or at its backward graph) is over."""

    event: DynamoCompile  # without texts and stacks; ``t`` in ns of the unix clock, 0: not known
    func: str  # the user's name for it: "forward" also for the part behind a graph break
    file: str
    line: int  # of its definition; of the break, for the part behind it
    resumed: int  # line of the break it goes on behind; 0: it is the function itself
    limit: str  # "recompile_limit" | "accumulated_recompile_limit", where that stopped it
    limit_value: int


class Captured(NamedTuple):
    """The graph that an attempt captured."""

    compile: str
    text: str  # a hash of its text, which has its operations, sizes and constants; "": the record has no text
    static: bool  # none of its sizes is a variable
    operations: str = ""  # a hash of what it calls, in order, whatever the sizes and constants


class Part(NamedTuple):
    """The captured graph was split for DistributedDataParallel: one of its parts, or all of them."""

    compile: str
    whole: bool


class Keyed(NamedTuple):
    """Inductor has looked a graph up in its cache."""

    compile: str
    payload: Any  # for :func:`.cache_key.read`: long, and of no use to one rank alone


Parsed = Broke | Specialized | Recompiles | Compiled | Captured | Part | Keyed

_CACHE = "inductor_fx_local_cache"
_PART = "submod_"  # how torch.fx calls the parts of a graph
_VARIABLE = '"Sym('  # the type of a graph's input that is a size
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
_CALLED = re.compile(r" = ([\w.]*[A-Za-z_]\w*)\(")
_LIMIT = re.compile(r"exceeding the (\w*recompile_limit) .*?set to (\d+)", re.DOTALL)


def parse(metadata: Any, payload: Any) -> Parsed | None:
    """One of the above; None of any other record."""
    if not isinstance(metadata, dict):
        return None
    artifact = metadata.get("artifact")
    if isinstance(artifact, dict):
        name = artifact.get("name")
        if name == "dynamo_graph_break_reason" and isinstance(payload, str):
            return Broke(compile_id(metadata), parse_break(payload))
        if name == "dynamo_error" and isinstance(payload, str):
            failure = parse_failure(payload)
            return None if failure is None else Broke(compile_id(metadata), failure, raised=True)
        if name == "recompile_reasons" and isinstance(payload, str):
            return Recompiles(compile_id(metadata), tuple(map(parse_reason, _reasons(payload))))
        if isinstance(name, str) and name.startswith(cache_key.ARTIFACTS):
            return Keyed(compile_id(metadata), payload)
        return None
    if isinstance(made := metadata.get("symbolic_shape_specialization"), dict):
        return _specialized(made, metadata)
    if "dynamo_output_graph" in metadata:
        text = payload if isinstance(payload, str) else ""
        if not text:
            return Captured(compile_id(metadata), "", False)
        return Captured(compile_id(metadata), graph_hash(text), _VARIABLE not in text, operations_hash(text))
    if "optimize_ddp_split_graph" in metadata:
        return Part(compile_id(metadata), whole=True)
    if isinstance(child := metadata.get("optimize_ddp_split_child"), dict):
        return Part(compile_id(metadata), whole=False) if _text(child, "name").startswith(_PART) else None
    for key in ("compilation_metrics", "bwd_compilation_metrics"):
        metrics = metadata.get(key)
        if isinstance(metrics, dict):
            return _compiled(metrics, metadata, key.startswith("bwd"))
    return None


def graph_hash(text: str) -> str:
    """A hash of a graph's text that is the same on all ranks that compile the same.

    Each has a device of another number, and a host may keep the program in a folder of its own.
    """
    same = cache_key.without_device_numbers(_COMMENT.sub("", text))
    return hashlib.blake2b(same.encode(errors="replace"), digest_size=8).hexdigest()


def operations_hash(text: str) -> str:
    """A hash of the operations of a graph's text, in order; graphs of one code for other sizes have the same."""
    called = " ".join(_CALLED.findall(_COMMENT.sub("", text)))
    return hashlib.blake2b(called.encode(errors="replace"), digest_size=8).hexdigest()


def compile_id(metadata: dict[str, Any]) -> str:
    """Dynamo's name of a compilation, ``frame/version``; of compiled autograd's ``!graph/frame/version``."""
    parts = [str(metadata[key]) for key in ("frame_id", "frame_compile_id") if metadata.get(key) is not None]
    autograd = metadata.get("compiled_autograd_id")
    return "/".join([*([f"!{autograd}"] if autograd is not None else []), *parts])


def _specialized(made: dict[str, Any], metadata: dict[str, Any]) -> Specialized:
    sources, stack = made.get("sources"), made.get("user_stack")
    lines = [one for one in stack if isinstance(one, dict)] if isinstance(stack, list) else []
    return Specialized(
        compile_id(metadata),
        tuple(one for one in sources if isinstance(one, str)) if isinstance(sources, list) else (),
        tuple((int(_number(one, "filename")), int(_number(one, "line")), _text(one, "name")) for one in lines),
    )


def _reasons(payload: str) -> list[str]:
    """Several come as a JSON list, one as it is."""
    if payload.startswith("["):
        try:
            several = json.loads(payload)
        except ValueError:
            return [payload]
        if isinstance(several, list):
            return [one for one in several if isinstance(one, str)]
    return [payload]


def _compiled(metrics: dict[str, Any], metadata: dict[str, Any], backward: bool) -> Compiled:
    func, resumed = user_name(_text(metrics, "co_name"))
    reason = _text(metrics, "fail_reason")
    limit = _LIMIT.search(reason) if "recompile limit" in reason else None
    dur = _number(metrics, "duration_us") * 1e3 or _number(metrics, "entire_frame_compile_time_s") * 1e9
    event = DynamoCompile(
        t=int(_number(metrics, "start_time_us")) * 1000,
        dur=int(dur),
        compile=_text(metrics, "compile_id") or compile_id(metadata),
        func=0,
        ops=int(_number(metrics, "graph_op_count")),
        inputs=int(_number(metrics, "graph_input_count")),
        guards=int(_number(metrics, "guard_count")),
        restarted=int(_number(metrics, "dynamo_time_before_restart_s") * 1e9),
        lower=int(_number(metrics, "backend_compile_time_s") * 1e9),
        backward=backward or metrics.get("is_forward") is False,
        compiled=backward or metrics.get("has_guarded_code") is True,
        cached=_number(metrics, f"{_CACHE}_hit_count") > 0 == _number(metrics, f"{_CACHE}_miss_count"),
        fail=_text(metrics, "fail_type"),
    )
    file, line = _text(metrics, "co_filename"), int(_number(metrics, "co_firstlineno"))
    return Compiled(event, func, file, line, resumed, limit[1] if limit else "", int(limit[2]) if limit else 0)


def _text(metrics: dict[str, Any], key: str) -> str:
    value = metrics.get(key)
    return value if isinstance(value, str) else ""


def _number(metrics: dict[str, Any], key: str) -> float:
    value = metrics.get(key)
    return value if isinstance(value, int | float) and value == value and abs(value) < 1e18 else 0
