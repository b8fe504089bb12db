"""The token of a job that torchrun starts: in a file of its user's alone, and not in torch's store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xlaprof.runtime.distributed.job import world

SCRIPT = """
import json, os, torch
from xlaprof.runtime import distributed as xd
from xlaprof.runtime.distributed.job import world

seen = []
read = world._read_private

def read_and_note(path):
    modes = [os.stat(place).st_mode & 0o777 for place in (path, os.path.dirname(path))]
    seen.extend([path, *modes, read(path)])
    return seen[-1]

world._read_private = read_and_note
here = world.join()
run, attempt = os.environ["TORCHELASTIC_RUN_ID"], os.environ["TORCHELASTIC_RESTART_COUNT"]
published = world.store().get(f"xlaprof/{run}/{attempt}/coordinator").decode()
total = sum(map(int, xd.rendezvous("all", b"1")))
open(f"rank{here.rank}.json", "w").write(json.dumps([published, *seen, os.path.exists(seen[0]), total]))
"""


def test_torchruns_ranks_of_one_host_keep_it_out_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        torchrun, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        published, path, mode, folders, text, there, total = json.loads((tmp_path / f"rank{rank}.json").read_text())
        token = text.split()[-1]
        assert len(token) == 32
        assert published == path, "the store has the path alone"
        assert (mode, folders) == (0o600, 0o700)
        assert not there, "removed when all have joined"
        assert total == 2
    assert not list(tmp_path.glob("xlaprof-job-*"))


@pytest.mark.parametrize("wrong", ["readable", "link", "folder", "pipe", "missing"])
def test_a_path_that_somebody_else_put_into_the_store_is_refused(tmp_path: Path, wrong: str) -> None:
    path, secret = tmp_path / "coordinator", tmp_path / "secret"
    secret.write_text("10.0.0.1 1 2 token")
    secret.chmod(0o600)
    if wrong == "readable":
        path.write_text(secret.read_text())
        path.chmod(0o644)
    elif wrong == "link":
        path.symlink_to(secret)
    elif wrong == "folder":
        path.mkdir()
    elif wrong == "pipe":
        os.mkfifo(path, 0o600)
    with pytest.raises(world.WorldError, match=r"XLAPROF_JOB_TOKEN") as caught:
        world._read_private(str(path))
    assert "\n" not in str(caught.value)
