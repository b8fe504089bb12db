"""What a graph's key in inductor's cache is made of: read of its records, and compared between ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._inductor.config as settings

import xlaprof
from xlaprof.cli import main
from xlaprof.events import DynamoCompile
from xlaprof.log import read as read_log
from xlaprof.sources.dynamo.inductor.cache_key import read

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # what inductor imports is deprecated

PARTS = [
    "[bkgd23efhqhdbdkm4xb2pdcrfmcgka] gm: GraphModule()\n\ndef forward(self, x):\n    return x.to('cuda:{rank}')",
    "[ixc2diriy66ra5bbfbyw6dyyxvcmt5] example_inputs[0]: TensorMetadata(device=device(type='cuda', index={rank}))",
    "[lmglpn4zi7vob56n34r2j2rk7flv5x] fx_kwargs[boxed_forward_device_index]: BoxedDeviceIndex(value={rank})",
    "[esstihe2nyydk4mhzpvox3qkajyu5y] inductor_config[cpp.threads]: {threads}",
]


def record(rank: int, threads: int = 1) -> str:
    parts = [one.format(rank=rank, threads=threads) for one in PARTS[:-1]]
    parts.append(PARTS[-1].format(threads=threads).replace("[esst", f"[{threads}sst"))
    return json.dumps({"key": "f", "components": parts})


def test_ranks_differ_in_their_devices_alone_have_the_same_parts() -> None:
    first, second = read(record(0)), read(record(1))
    assert first == second
    assert sorted(first) == ["example_inputs", "gm", "inductor_config[cpp.threads]"]
    other = read(record(1, threads=2))
    assert [name for name in other if other[name] != first[name]] == ["inductor_config[cpp.threads]"]
    assert "GraphModule" not in json.dumps(first), "hashes alone are kept"


@pytest.mark.parametrize("torn", [None, "", "{", "[]", "7", '{"components": 7}', '{"components": [7, "x", "[a] b"]}'])
def test_a_record_of_another_form_names_no_parts(torn: Any) -> None:
    assert read(torn) == {}


def swish(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x) * x


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int, world: int, path: Path, fuse: bool) -> None:
    """Record what a rank of so many compiles, whose inductor fuses or does not."""
    monkeypatch.setenv("WORLD_SIZE", str(world))
    monkeypatch.setenv("RANK", str(rank))
    torch._dynamo.reset()
    with settings.patch(epilogue_fusion=fuse), xlaprof.record(path / "run.{rank}.log"):
        torch.compile(swish)(torch.ones(5))
    torch._dynamo.reset()


def test_ranks_of_which_one_has_another_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        as_rank(monkeypatch, rank, 2, tmp_path, fuse=rank == 0)
    assert main(["report", str(tmp_path), "--json"]) == 0
    (function,) = json.loads(capsys.readouterr().out)["functions"]
    assert (function["name"], function["graphs"]) == ("swish", [])
    assert function["keys"] == {"ranks": [[0], [1]], "parts": ["inductor_config[epilogue_fusion]"]}
    assert "they differ in torch._inductor.config.epilogue_fusion" in function["told"][0]
    with read_log(tmp_path / "run.1.log") as log:
        (compiled,) = (event for event in log if isinstance(event, DynamoCompile))
    assert {"gm", "example_inputs", "torch_version"} <= set(compiled.key)
    assert max(map(len, compiled.key.values())) <= 16, "hashes, and no value"


def test_one_rank_alone_records_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 0, 1, tmp_path, fuse=True)
    with read_log(tmp_path / "run.0.log") as log:
        assert [event.key for event in log if isinstance(event, DynamoCompile)] == [{}]
