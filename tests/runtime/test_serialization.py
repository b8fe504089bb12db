"""Saving, loading, pickling and copying: nothing is lost on the way, and it goes wherever it is sent."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import textwrap
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import xlaprof.runtime as xr

from .counting import counted


class Tied(nn.Module):
    """A language model in small: the output layer is the embedding, and a buffer is part of another."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("table", torch.arange(6.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embedding(x)))


def _saved(value: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


@pytest.mark.parametrize("legacy", [False, True])
def test_every_dtype_and_shape_from_and_to_either_device(legacy: bool) -> None:
    dtypes = [d for d in DTYPES if not (legacy and d in torch.storage._new_dtypes())]  # PyTorch's limit
    here = {str(d): torch.tensor([[0, 1, 2], [3, 100, 5]]).to(d) for d in dtypes}
    here |= {"scalar": torch.tensor(2.5), "none": torch.zeros(0, 3), "flat": torch.zeros(0)}
    there = {name: value.to("xla") for name, value in here.items()}
    for source in (here, there):
        file = _saved(source, _use_new_zipfile_serialization=not legacy)
        for target in ("cpu", "xla"):
            file.seek(0)
            loaded = torch.load(file, map_location=target)
            assert list(loaded) == list(here)
            for name, value in loaded.items():
                assert value.device.type == target
                assert (value.dtype, value.shape) == (here[name].dtype, here[name].shape)
                assert value.cpu().tolist() == here[name].tolist(), name


@pytest.mark.parametrize(
    ("map_location", "device"),
    [
        (None, "xla"),
        ("cpu", "cpu"),
        ("xla", "xla"),
        (torch.device("xla", 0), "xla"),
        ({"xla:0": "cpu"}, "cpu"),
        ({"xla:0": "xla:0"}, "xla"),
        (lambda storage, location: storage, "cpu"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"weights_only": False}, {"mmap": True}])
def test_what_was_tied_is_tied_wherever_it_goes(
    tmp_path: Path, map_location: Any, device: str, options: dict[str, Any]
) -> None:
    model = Tied().to("xla")
    values = model.table.view(2, 3)
    whole = {"model": model.head} if options.get("weights_only") is False else {}
    parts = {"row": values[1], "column": values[:, 1], "t": values.t()}
    torch.save({"state": model.state_dict(), **parts, **whole}, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", map_location=map_location, **options)
    state = loaded["state"]
    assert {value.device.type for value in state.values()} == {device}
    assert type(state) is OrderedDict
    state["embedding.weight"].fill_(7)
    assert state["head.weight"].tolist() == [[7.0] * 3] * 5
    state["table"].mul_(10)
    assert loaded["row"].tolist() == [30.0, 40.0, 50.0]
    assert loaded["column"].tolist() == [10.0, 40.0]
    assert loaded["t"].tolist() == [[0.0, 30.0], [10.0, 40.0], [20.0, 50.0]]
    assert loaded["t"].stride() == (1, 3)
    if "model" in loaded:
        assert loaded["model"].weight.tolist() == [[7.0] * 3] * 5
        assert isinstance(loaded["model"].weight, nn.Parameter)


def test_a_file_made_on_xla_loads_where_there_is_none(tmp_path: Path) -> None:
    model = Tied().to("xla")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.tensor([1, 2], device="xla")).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "all.pt")
    torch.save(model.embedding.weight, tmp_path / "weight.pt")
    program = """
        import sys, torch
        loaded = torch.load(sys.argv[1] + "/all.pt", map_location="cpu")
        assert loaded["optimizer"]["state"][0]["exp_avg"].device.type == "cpu"
        weight = torch.load(sys.argv[1] + "/weight.pt", map_location="cpu")
        assert isinstance(weight, torch.nn.Parameter) and weight.requires_grad
        assert torch.equal(loaded["model"]["head.weight"], weight)
        assert not any(name.startswith(("xlaprof", "jax")) for name in sys.modules)
        try:
            torch.load(sys.argv[1] + "/all.pt")
        except RuntimeError as error:
            print(error)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert "don't know how to restore data location" in done.stdout, done.stderr
    assert "xla:0" in done.stdout


def test_training_goes_on_from_a_checkpoint() -> None:
    def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> list[float]:
        losses = []
        for _ in range(count):
            optimizer.zero_grad()
            loss = model(torch.tensor([0, 1, 3], device="xla")).pow(2).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            xr.sync()
        return [loss.item() for loss in losses]

    torch.manual_seed(0)
    model = Tied().to("xla")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    steps(model, optimizer, 2)
    file = _saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    expected = steps(model, optimizer, 3)
    again = Tied().to("xla")
    fresh = torch.optim.AdamW(again.parameters(), lr=0.1)
    checkpoint = torch.load(file, map_location="cpu")
    again.load_state_dict(checkpoint["model"])
    fresh.load_state_dict(checkpoint["optimizer"])
    assert again.head.weight is again.embedding.weight
    assert steps(again, fresh, 3) == expected


def test_saving_runs_what_is_pending_as_one_graph_and_loading_runs_nothing() -> None:
    xr.sync()
    pending = [torch.ones(3, device="xla") * i for i in range(2, 7)]
    with counted() as counts:
        file = _saved(pending)
    assert (counts.runs, counts.reads) == (1, 5)
    with counted() as counts:
        loaded = torch.load(file)
    assert (counts.runs, counts.reads) == (0, 0)
    assert [value.tolist() for value in loaded] == [[float(i)] * 3 for i in range(2, 7)]


def test_what_autograd_and_users_attached() -> None:
    x = torch.ones(2, device="xla", requires_grad=True)
    x.note = "kept"  # type: ignore[attr-defined]
    weight = nn.Parameter(torch.ones(2, device="xla"), requires_grad=False)
    weight.tensor_parallel = True  # type: ignore[attr-defined]
    buffer = nn.Buffer(torch.ones(2, device="xla"), persistent=False)
    conjugate = torch.tensor([1 + 2j], device="xla").conj()
    for target in ("cpu", "xla"):
        a, b, c, d = torch.load(_saved([x, weight, buffer, conjugate]), map_location=target)
        assert (a.requires_grad, a.note, a.device.type) == (True, "kept", target)
        assert (isinstance(b, nn.Parameter), b.requires_grad, b.tensor_parallel) == (True, False, True)
        assert (isinstance(c, nn.Buffer), c.persistent) == (True, False)
        assert d.tolist() == [1 - 2j]
    x.register_hook(lambda gradient: gradient)
    with pytest.warns(UserWarning, match="hook"):
        _saved(x)


def test_a_device_that_is_not_there() -> None:
    file = _saved(torch.ones(1))
    with pytest.raises(RuntimeError, match=r"on xla:7, but this process has 1 xla device"):
        torch.load(file, map_location="xla:7")


def test_files_of_pytorch_xla_load() -> None:
    # It saves each tensor as its copy on the host and the device it was on.
    class Theirs:
        def __reduce__(self) -> Any:
            return torch._utils._rebuild_device_tensor_from_cpu_tensor, (torch.ones(2), torch.float32, "xla:0", True)

    loaded = torch.load(_saved(Theirs()))
    assert (loaded.device.type, loaded.requires_grad, loaded.tolist()) == ("xla", True, [1.0, 1.0])


def test_pickle_and_copies() -> None:
    x = torch.arange(4.0, device="xla")
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        back = pickle.loads(pickle.dumps({"x": x, "w": nn.Parameter(x)}, protocol))
        assert back["x"].device == x.device
        assert back["x"].tolist() == x.tolist()
        assert isinstance(back["w"], nn.Parameter)
    shallow = copy.copy(x)
    x.add_(1)
    assert shallow.tolist() == x.tolist() == [1.0, 2.0, 3.0, 4.0]  # the same storage, as on any device


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_deepcopy_as_on_the_cpu(device: str) -> None:
    model = Tied().to(device)
    model.head.register_forward_hook(lambda *args: None)
    model(torch.tensor([1, 2], device=device)).sum().backward()
    model.embedding.weight.note = 1  # type: ignore[attr-defined]
    twin = copy.deepcopy(model)
    assert twin.head.weight is twin.embedding.weight
    assert twin.head.weight.device == model.head.weight.device
    assert len(twin.head._forward_hooks) == 1
    assert twin.head.weight.grad is None  # PyTorch copies a parameter's value and nothing else
    assert not hasattr(twin.head.weight, "note")
    with torch.no_grad():
        twin.head.weight.fill_(0)
    assert model.head.weight.abs().sum().item() > 0

    leaf = torch.ones(2, device=device, requires_grad=True)
    leaf.grad = torch.full_like(leaf, 3)
    leaf.notes = ["a"]  # type: ignore[attr-defined]
    other = copy.deepcopy(leaf)
    assert other.grad is not None
    assert other.grad.tolist() == [3.0, 3.0]
    assert other.notes == ["a"]
    assert other.notes is not leaf.notes  # type: ignore[attr-defined]
    base = torch.arange(4.0, device=device)
    whole, part = copy.deepcopy([base, base[1:3]])
    whole.add_(10)
    assert part.tolist() == [11.0, 12.0]
    with pytest.raises(RuntimeError, match=r"Only Tensors created explicitly by the user \(graph leaves\) support the"):
        copy.deepcopy(leaf * 2)


def test_safetensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    model = Tied().to("xla")
    path = tmp_path / "model.safetensors"
    with pytest.raises(RuntimeError, match="share memory"):
        safetensors.save_file(model.state_dict(), path)
    safetensors.save_model(model, path)
    assert sum("weight" in name for name in safetensors.load_file(path)) == 2  # the shared one is there once
    loaded = safetensors.load_file(path, device="xla")
    assert {value.device for value in loaded.values()} == {torch.device("xla", 0)}
    twin = Tied().to("xla")
    safetensors.load_model(twin, path, device="xla")
    assert twin.head.weight is twin.embedding.weight
    for ours, theirs in zip(twin.state_dict().values(), model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    dtypes = [d for d in DTYPES if d is not torch.complex128]  # which the format lacks
    values = {str(d): torch.tensor([[0, 1], [2, 3]]).to(d).to("xla") for d in dtypes}
    safetensors.save_file(values, path)
    for name, value in safetensors.load_file(path, device="xla:0").items():
        assert value.cpu().tolist() == values[name].cpu().tolist()


def _worker(queue: Any, back: Any) -> None:
    back.put(queue.get().sum().item())


class _Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index))


@pytest.mark.slow
def test_copies_on_the_host_go_to_other_processes() -> None:
    context = torch.multiprocessing.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    process = context.Process(target=_worker, args=(there, back))
    process.start()
    value = (torch.ones(3, device="xla") * 2).cpu()
    there.put(value)
    assert back.get(timeout=120) == 6.0
    process.join()
    loader = torch.utils.data.DataLoader(_Rows(), batch_size=2, num_workers=2, multiprocessing_context="spawn")
    assert torch.cat([rows.to("xla") for rows in loader]).sum().item() == 30.0
