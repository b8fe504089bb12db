"""``torch_xla.test.test_utils``: what PyTorch/XLA's example scripts print, and write for TensorBoard."""

from __future__ import annotations

import functools
import multiprocessing
import time
import unittest
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from xlaprof.runtime import distributed, metrics
from xlaprof.torch_xla.debug import metrics_compare_utils


def mp_test(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a test function: it runs in a process of its own, whose exit code is asserted to be 0."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> int | None:
        process = multiprocessing.Process(target=func, args=args, kwargs=kwargs)
        process.start()
        process.join()
        if args and isinstance(args[0], unittest.TestCase):
            args[0].assertEqual(process.exitcode, 0)  # noqa: PT009  # a test case of the user's
        return process.exitcode

    return wrapper


def get_summary_writer(logdir: str | None) -> Any:
    """A ``SummaryWriter`` of ``tensorboardX`` or TensorBoard that writes to ``logdir``; ``None`` without one."""
    if not logdir:
        return None
    try:
        from tensorboardX import SummaryWriter  # type: ignore[import-not-found]
    except ImportError:
        from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(log_dir=logdir)
    write_to_summary(writer, 0, {"TensorboardStartTimestamp": time.time()})
    return writer


def write_to_summary(
    summary_writer: Any,
    global_step: int | None = None,
    dict_to_write: Mapping[str, float] | None = None,
    write_xla_metrics: bool = False,
) -> None:
    """Write scalars, and with ``write_xla_metrics`` the runtime's counters and metrics."""
    if summary_writer is None:
        return
    for name, value in (dict_to_write or {}).items():
        summary_writer.add_scalar(name, value, global_step)
    if write_xla_metrics:
        found = metrics_compare_utils.parse_metrics_report(metrics.metrics_report())
        for name, value in found.items():
            summary_writer.add_scalar(name, value, global_step)
        on_host = sum(value for name, value in found.items() if name.startswith("aten::"))
        summary_writer.add_scalar("aten_ops_sum", on_host, global_step)


def close_summary_writer(summary_writer: Any) -> None:
    """Flush and close it, if there is one."""
    if summary_writer is not None:
        summary_writer.flush()
        summary_writer.close()


def now(format: str = "%H:%M:%S") -> str:
    """The time of day."""
    return datetime.now().strftime(format)


def print_training_update(
    device: Any,
    step: int,
    loss: float,
    rate: float,
    global_rate: float,
    epoch: int | None = None,
    summary_writer: Any = None,
) -> None:
    """Print a line of progress: loss, examples per second since the last line and since the beginning."""
    _print_line(
        "Training",
        Device=_where(device),
        Epoch=epoch,
        Step=step,
        Loss=f"{loss:.5f}",
        Rate=f"{rate:.2f}",
        GlobalRate=f"{global_rate:.2f}",
    )
    write_to_summary(summary_writer, dict_to_write={"examples/sec": rate, "average_examples/sec": global_rate})


def print_test_update(device: Any, accuracy: float | None, epoch: int | None = None, step: int | None = None) -> None:
    """Print a line of results."""
    shown = None if accuracy is None else f"{accuracy:.2f}"
    _print_line("Test", Device=_where(device), Step=step, Epoch=epoch, Accuracy=shown)


def _print_line(kind: str, **values: Any) -> None:
    fields = [f"{name}={value}" for name, value in values.items() if value is not None]
    print("|", kind, *fields, f"Time={now()}", flush=True)


def _where(device: Any) -> str:
    return f"{device}/{distributed.global_ordinal()}"
