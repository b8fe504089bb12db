"""Where PyTorch/XLA is not installed, ``torch_xla`` is ours; where it is, it is left alone."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import pkgutil
import subprocess
import sys
import textwrap
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

import xlaprof.torch_xla
from xlaprof import events
from xlaprof.torch_xla._names import TABLE
from xlaprof.torch_xla._served import homes

ROOT = Path(__file__).parents[2]


def python(program: str, cwd: Path, *path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    where = os.pathsep.join(map(str, path))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": where, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


def run(program: str, cwd: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """``xlaprof run`` of the program."""
    (cwd / "script.py").write_text(textwrap.dedent(program))
    return subprocess.run(
        [sys.executable, "-m", "xlaprof", "run", "--no-report", *args, "script.py"],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_both_names_are_the_same_modules() -> None:
    import torch_xla
    import torch_xla.core.xla_model as xm
    from torch_xla.distributed import parallel_loader as pl

    assert torch_xla is xlaprof.torch_xla
    assert xm is importlib.import_module("xlaprof.torch_xla.core.xla_model")
    assert pl.MpDeviceLoader is importlib.import_module("xlaprof.runtime.transfer.loader").MpDeviceLoader
    assert xm.__spec__ is not None
    assert xm.__spec__.name == "xlaprof.torch_xla.core.xla_model"  # by which its relative imports go


def test_whether_it_is_installed_and_which_version_can_be_asked() -> None:
    assert find_spec("torch_xla") is not None
    assert find_spec("torch_xla.core.xla_model") is not None
    assert find_spec("torch_xla.nothing") is None
    assert metadata.version("torch_xla") == metadata.version("torch-xla") == xlaprof.torch_xla.__version__
    assert metadata.version("torch_xla").startswith("2.9.0+xlaprof.")
    assert "torch_xla" in metadata.packages_distributions()["torch_xla"]
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'torch_xla\.nothing'"):
        importlib.import_module("torch_xla.nothing")


def test_all_modules_are_importable_and_all_names_they_promise_are_there() -> None:
    files = [module.name for module in pkgutil.walk_packages(xlaprof.torch_xla.__path__, "torch_xla.")]
    for module in {*files, *(f"torch_xla.{module}".rstrip(".") for module in TABLE)}:
        served = importlib.import_module(module)
        promised = {*homes(f"xlaprof.{module}"), *served.__dict__.get("__all__", ())} - {"*", "="}
        for name in promised:
            assert getattr(served, name) is not None, (module, name)
            assert name in dir(served)


def test_a_module_of_other_modules_names_follows_them() -> None:
    import torch_xla._dynamo.config as config
    from torch_xla.experimental import pjrt, xla_sharding

    from xlaprof.runtime.dynamo import config as own

    assert config is own  # what is set there is set here
    assert xla_sharding.Mesh is importlib.import_module("xlaprof.runtime.spmd").Mesh
    assert (pjrt.world_size(), pjrt.spawn.__module__) == (1, "xlaprof.torch_xla._internal.pjrt")


def test_what_is_not_served_is_named_as_the_script_named_it() -> None:
    from torch_xla.core import xla_model
    from torch_xla.distributed import fsdp

    with pytest.raises(AttributeError, match=r"module 'torch_xla.core.xla_model' has no attribute 'no_such_thing'"):
        _ = xla_model.no_such_thing
    with pytest.raises(AttributeError, match=r"module 'torch_xla.distributed.fsdp' has no attribute 'no_such_thing'"):
        _ = fsdp.no_such_thing


def test_until_it_is_asked_for_nothing_is_loaded(tmp_path: Path) -> None:
    program = """
        import sys
        from importlib import metadata
        from importlib.util import find_spec
        print(find_spec("torch_xla") is not None, metadata.version("torch_xla")[:5], "torch" in sys.modules)
        print("jax" in sys.modules)
    """
    done = run(program, tmp_path)
    assert (done.stdout, done.stderr) == ("True 2.9.0 False\nFalse\n", "")


PROBE = """
from importlib import metadata
from importlib.util import find_spec
def has_xla():
    try:
        import torch_xla
    except ImportError:
        return find_spec("torch_xla") is not None or "torch_xla" in [d.name for d in metadata.distributions()]
    return True
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("first", "env", "found"),
    [
        ("", {}, "False"),  # the program would train elsewhere than without xlaprof
        ("", {"PJRT_DEVICE": "CPU"}, "True"),
        ("def later(): import torch_xla.core.xla_model as xm", {}, "True"),
        ("device = 'xla:0'", {}, "True"),
        ("from importlib.util import find_spec; find_spec('torch_' + 'xla')", {}, "True"),
    ],
)
def test_a_library_finds_it_only_where_the_program_asks_for_it(
    first: str, env: dict[str, str], found: str, tmp_path: Path
) -> None:
    package = tmp_path / "site-packages" / "trainer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PROBE)
    program = f"import sys; sys.path.insert(0, 'site-packages')\n{first}\nimport trainer\nprint(trainer.has_xla())"
    asked = {name: value for name, value in os.environ.items() if name != "PJRT_DEVICE"}
    (tmp_path / "script.py").write_text(program)
    command = [sys.executable, "-m", "xlaprof", "run", "--no-report", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env={**asked, **env}, capture_output=True, text=True, timeout=300)
    assert (done.stdout.strip(), done.stderr) == (found, "")


REAL = '''
"""Stands for the real torch_xla."""
from importlib.machinery import ModuleSpec
__version__ = "2.9.0"
from . import runtime
'''


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with another ``torch_xla`` in it, as pip installs one."""
    site = tmp_path / "site"
    (site / "torch_xla").mkdir(parents=True)
    (site / "torch_xla" / "__init__.py").write_text(REAL)
    (site / "torch_xla" / "runtime.py").write_text("whose = 'theirs'\n")
    (site / "torch_xla-2.9.0.dist-info").mkdir()
    (site / "torch_xla-2.9.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch_xla\nVersion: 2.9.0\n"
    )
    return site


def test_one_that_is_installed_is_used(tmp_path: Path, installed: Path) -> None:
    program = """
        import torch_xla, sys
        from importlib import metadata
        from torch_xla import runtime
        print(torch_xla.__file__, runtime.whose, metadata.version("torch_xla"), "xlaprof.torch_xla" in sys.modules)
    """
    done = run(program, tmp_path, PYTHONPATH=str(installed))
    assert done.stdout == f"{installed}/torch_xla/__init__.py theirs 2.9.0 False\n", done.stderr
    # and our name for it is it
    program = """
        import xlaprof.torch_xla, torch_xla
        import xlaprof.torch_xla.runtime as ours, torch_xla.runtime as theirs
        print(xlaprof.torch_xla is torch_xla, ours is theirs, ours.whose)
    """
    done = python(program, tmp_path, ROOT, installed)
    assert done.stdout == "True True theirs\n", done.stderr


WATCHED = {
    "__init__.py": "from . import _XLAC\ndef sync():\n    _XLAC._xla_step_marker()\n",
    "debug/__init__.py": "",
    "debug/metrics.py": "from torch_xla._XLAC import *\n",
    "_XLAC.py": """
import time
runs = []
def _xla_step_marker():
    runs.append((time.time(), 2e6))
def counter_names(): return ["MarkStep"]
def counter_value(name): return len(runs)
def metric_names(): return ["ExecuteTime"]
def metric_data(name):
    return (len(runs), sum(v for _, v in runs), runs) if name == "ExecuteTime" else None
""",
}


def test_one_that_is_installed_is_observed(tmp_path: Path, installed: Path) -> None:
    for name, text in WATCHED.items():
        path = installed / "torch_xla" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    program = """
        import torch_xla
        for _ in range(3):
            torch_xla.sync()  # the line
        print(torch_xla.__file__)
    """
    done = run(program, tmp_path, PYTHONPATH=str(installed))
    assert done.stdout == f"{installed}/torch_xla/__init__.py\n", done.stderr
    log = list(xlaprof.read(tmp_path / "run.log"))
    texts = {e.id: e.text for e in log if isinstance(e, events.Text)}
    stacks = {e.id: e for e in log if isinstance(e, events.Stack)}
    barriers = [e for e in log if isinstance(e, events.Barrier)]
    assert [texts[stacks[b.stack].frames[0].code] for b in barriers] == ["torch_xla.sync()  # the line"] * 3
    executed = [e for e in log if isinstance(e, events.Execute)]
    assert [(e.seq, e.end - e.start) for e in executed] == [(b.execution, 2_000_000) for b in barriers]
    counts = [e.counts for e in log if isinstance(e, events.Counters)][-1]
    assert (counts["MarkStep"], counts["ExecuteTime"]) == (3, 3)


@pytest.mark.slow
def test_a_folder_of_that_name_and_a_checkout_that_was_not_built_are_no_installation(tmp_path: Path) -> None:
    (tmp_path / "plain" / "torch_xla").mkdir(parents=True)
    checkout = tmp_path / "checkout" / "torch_xla"
    (checkout / "csrc").mkdir(parents=True)
    (checkout / "__init__.py").write_text("import _XLAC")
    program = "import xlaprof.torch_xla, torch_xla; print(torch_xla is xlaprof.torch_xla, torch_xla.devices())"
    for folder in ("plain", "checkout"):
        done = python(program, tmp_path, ROOT, tmp_path / folder)
        assert done.stdout == "True [device(type='xla', index=0)]\n", done.stderr


@pytest.mark.slow
def test_processes_that_are_spawned_have_it_too(tmp_path: Path) -> None:
    program = """
        import multiprocessing
        import torch_xla                      # a child imports this file first

        def child(queue):
            queue.put((torch_xla.__version__[:5], str(torch_xla.device())))

        if __name__ == "__main__":
            for method in ("spawn", "forkserver"):
                context = multiprocessing.get_context(method)
                queue = context.SimpleQueue()
                process = context.Process(target=child, args=(queue,))
                process.start()
                print(*queue.get())
                process.join()
    """
    done = run(program, tmp_path)
    assert done.stdout == "2.9.0 xla:0\n" * 2, done.stderr


def _version_there() -> str:
    import torch_xla

    return torch_xla.__version__


def test_activated_from_code_it_reaches_spawned_processes() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_version_there) == xlaprof.torch_xla.__version__


@pytest.mark.slow
def test_ranks_of_torchrun_record_each_its_own(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
        import torch, torch_xla.runtime as xr, torch_xla.core.xla_model as xm, torch_xla.distributed.xla_backend
        import torch.distributed as dist
        import xlaprof
        dist.init_process_group("xla", init_method="xla://")
        with xlaprof.StepTrace("train"):
            x = torch.ones(2, device=xm.xla_device()) * (xr.global_ordinal() + 1)
            total = xm.all_reduce(xm.REDUCE_SUM, x)
            xm.mark_step()
        print(xr.world_size(), total.tolist())
        """)
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    done = subprocess.run(
        [*torchrun, "xlaprof", "run", "--json", "script.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2 [3.0, 3.0]"] * 2
    assert "findings" in json.loads((tmp_path / "run.rank0.json").read_text())
    assert not (tmp_path / "run.rank1.json").exists()  # one report: rank 0's
    assert (tmp_path / "run.rank1.log").exists()


def test_a_program_that_asks_for_an_accelerator_gets_the_device_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
        import sys, torch
        from torch.accelerator import is_available

        print(*[module in sys.modules for module in ("jax", "xlaprof.runtime")])
        device = torch.accelerator.current_accelerator() if is_available() else torch.device("cpu")
        print(device, torch.ones(2, device=device).sum().item(), torch.accelerator.device_count())
    """
    assert run(program, tmp_path, PJRT_DEVICE="CPU").stdout == "False False\nxla 2.0 1\n"
    late = """
        import torch
        from torch.accelerator import is_available
        import torch_xla

        print(is_available(), torch.accelerator.is_available())
        print(list(torch.utils.data.DataLoader([1], pin_memory=True)))
    """
    done = run(late, tmp_path, PJRT_DEVICE="CPU")
    assert done.stdout == "True True\n[tensor([1])]\n", done.stderr
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    assert run(program, tmp_path).stdout == "False False\ncpu 2.0 0\n"
