"""Threads that record at once, and processes forked from one that used the device."""

from __future__ import annotations

import threading

import torch

from ..test_device import in_a_fresh_process  # noqa: TID252


def test_forked_children_are_told_or_left_alone_and_the_parent_goes_on() -> None:
    done = in_a_fresh_process(
        """
        import os, warnings
        warnings.simplefilter("ignore")  # jax warns of forks as such
        import torch, xlaprof.runtime as xr
        from torch.utils.data import DataLoader, TensorDataset
        x = torch.ones(2, device="xla") + 1
        xr.sync()
        if os.fork() == 0:
            for call in (lambda: x + 1, lambda: torch.ones(2).to("xla"), xr.sync, lambda: print(x)):
                try:
                    call()
                except RuntimeError as error:
                    print(error, flush=True)
            os._exit(0)
        os.wait()
        for (batch,) in DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=1):  # host tensors only
            x += batch.to("xla").sum()
        print(x.tolist())
        """
    )
    *told, parent = done.stdout.splitlines()
    assert len(told) == 4, done.stderr
    assert set(told) == {told[0]}
    assert told[0].startswith("Cannot use xla in a forked subprocess")
    assert "you must use the 'spawn' start method" in told[0]
    assert parent == "[30.0, 30.0]"


def test_an_error_in_one_thread_is_that_threads() -> None:
    outcomes: dict[int, list[object]] = {i: [] for i in range(4)}

    def work(i: int) -> None:
        x = torch.full((3,), float(i), device="xla")
        for _ in range(5):
            try:
                x @ torch.ones(2, device="xla")
            except RuntimeError as error:
                outcomes[i].append("size" in str(error))
            outcomes[i].append((x * 2).tolist() == [2.0 * i] * 3)

    threads = [threading.Thread(target=work, args=(i,)) for i in outcomes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(outcome == [True] * 10 for outcome in outcomes.values()), outcomes
