"""Optimizer state, parameters and gradients divided among ranks: the numbers are those of one process.

Starting ranks is dear, so two are started once for the checks of both modules, and four with the slow tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import xlaprof.torch_xla
from xlaprof.runtime.spmd.checkpoint import preemption

from . import checks_fsdp, checks_zero, ranks
from .checks import Check, run_all

PAGE = Path(__file__).parents[3] / "docs" / "sharded-training.md"

CHECKS: dict[str, Check] = {
    f"{module.__name__.rpartition('_')[2]}: {name}": check
    for module in (checks_zero, checks_fsdp)
    for name, check in module.CHECKS.items()
}
#: one of each capability, for every run
FEW = {
    name: CHECKS[name]
    for name in (
        "zero: it_trains_as_one_process_does",
        "fsdp: inner_wrappers_gather_again_and_compute_again",
        "fsdp: mistakes_are_reported",
        "fsdp: a_look_at_where_a_rank_is_holds_nothing",
    )
}


def few(rank: int) -> dict[str, str]:
    return run_all(rank, FEW)


def everything(rank: int) -> dict[str, str]:
    return run_all(rank, CHECKS)


@pytest.fixture(scope="module")
def reported() -> list[dict[str, str]]:
    return ranks.run(few)


@pytest.mark.parametrize("check", FEW)
def test_on_two_ranks(check: str, reported: list[dict[str, str]]) -> None:
    for rank in reported:
        assert rank.get(check, "not come to") == ""


@pytest.mark.slow
@pytest.mark.parametrize("nprocs", [2, 4])
def test_on_more_ranks(nprocs: int) -> None:
    reported = ranks.run(everything, nprocs=nprocs)
    wrong = [text for rank in reported for text in rank.values() if text]
    assert not wrong, "\n".join(wrong)
    assert all(set(rank) == set(CHECKS) for rank in reported)


@pytest.mark.slow
def test_the_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert xlaprof.torch_xla  # what the page's programs import
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    try:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), {"__name__": "__main__"})
    finally:
        preemption.deactivate()
    assert capsys.readouterr().out.splitlines()[-1] == "['0.bias', '0.weight', '2.bias', '2.weight']"
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"10", "20"}
