"""Long runs: their figures are those of all parts, failures are shown once, and signals keep what was done."""

from __future__ import annotations

import argparse
import io
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from long_run import long_run


class Sum:
    """The sum of the seeds; those that end in 7 go wrong, in one way."""

    def __init__(self) -> None:
        self.sum = 0
        self.failures: dict[str, str] = {}

    def add(self, other: Sum) -> None:
        self.sum += other.sum
        self.failures |= other.failures

    def figures(self) -> str:
        return f"sum {self.sum}"


def add_up(seeds: range) -> Sum:
    done = Sum()
    done.sum = sum(seeds)
    for seed in seeds:
        if seed % 10 == 7:
            done.failures["a seven"] = f"seed {seed} went wrong"
    return done


def ended_by_the_user(seeds: range) -> Sum:
    """While the second part is at work."""
    if seeds.start == 10:
        os.kill(os.getppid(), signal.SIGINT)
    return add_up(seeds)


def ended_by_the_system(seeds: range) -> Sum:
    if seeds.start == 10:
        os.kill(os.getppid(), signal.SIGTERM)
    return add_up(seeds)


def broken(seeds: range) -> Sum:
    if seeds.start == 10:
        raise ZeroDivisionError
    return add_up(seeds)


def deadly(seeds: range) -> Sum:
    if {13, 14, 36} & {*seeds}:
        os.kill(os.getpid(), signal.SIGSEGV)
    return add_up(seeds)


def run(work, **options: int) -> tuple[int, list[str]]:
    said = io.StringIO()
    chosen = argparse.Namespace(**{"seed": 0, "count": 40, "workers": 1, "stop": 5} | options)
    code = long_run("numbers", chosen, work, Sum(), part=5, out=said)
    return code, said.getvalue().splitlines()


def test_all_seeds_are_counted_by_several_processes() -> None:
    code, said = run(add_up, seed=8, count=9, workers=2)
    assert (code, said[0]) == (0, f"sum {sum(range(8, 17))}")
    assert said[1].startswith("9 numbers, seeds 8 to 16: 0 different failures; ")


def test_a_failure_is_shown_once_and_is_the_exit_code() -> None:
    code, said = run(add_up)
    assert (code, said[:2]) == (1, ["seed 7 went wrong", f"sum {sum(range(40))}"])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_seed_that_kills_its_process_is_a_failure_and_the_others_are_done(workers: int) -> None:
    code, said = run(deadly, workers=workers, count=60)
    assert code == 1
    assert sorted(said[:-2]) == [*(f"seed {seed}: its process died" for seed in (13, 14, 36)), "seed 7 went wrong"]
    assert said[-2] == f"sum {sum({*range(60)} - {13, 14, 36})}"
    assert said[-1].startswith("60 numbers, seeds 0 to 59: 4 different failures; ")


@pytest.mark.parametrize("work", [ended_by_the_user, ended_by_the_system])
def test_a_signal_keeps_the_figures_of_what_was_done(work) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    _, said = run(work, count=4_000)
    done = int(said[-1].split(" of ")[0])
    assert 15 <= done < 4_000, "the part at work is finished, and not all that were to come"
    assert said[-2] == f"sum {sum(range(done))}"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_too_many_failures_end_it() -> None:
    code, said = run(add_up, count=4_000, stop=1)
    assert code == 1
    assert " of 4,000 numbers" in said[-1]


def test_figures_are_printed_even_if_the_run_itself_breaks() -> None:
    said = io.StringIO()
    with pytest.raises(ZeroDivisionError):
        long_run("numbers", argparse.Namespace(seed=0, count=40, workers=1, stop=5), broken, Sum(), part=5, out=said)
    assert f"sum {sum(range(10))}" in said.getvalue()


slow = partial(pytest.param, marks=pytest.mark.slow)  # torch and jax are imported twice


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("tests.kills --count 2 --busy 1 --workers 2", "2 kills, seeds 1 to 2"),
        ("tests.mutations --count 20", "20 logs, seeds 1 to 20"),
        slow("tests.runtime.semantics --programs 1 --statements 2", "1 programs, seeds 1 to 1"),
        slow("tests.runtime.errors.refusals --calls 1", "1 calls, seeds 1 to 1"),
    ],
    ids=lambda text: text.split()[0],
)
def test_each_kind_of_long_run_has_a_command(command: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), "--seed", "1"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert f"{told}: " in done.stdout, done.stderr
    assert " s of CPU" in done.stdout
