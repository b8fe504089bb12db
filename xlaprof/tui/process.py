"""Whether the process that writes a log still runs."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from xlaprof.tui.snapshot import Process

#: The kernel rounds the start of a process to hundredths of a second since boot.
_SLACK_S = 2.0
#: pid and start of a recording -> when its process began, in ticks since boot. The clock may jump after it was found.
_known: dict[tuple[int, float], str] = {}


def look(pid: int, host: str, started_unix_s: float) -> Process:
    """The fate of process ``pid`` on ``host`` that was running at unix time ``started_unix_s``.

    "unknown" on another machine or container (another host name) and where the system has no signal 0. "gone" also for
    a zombie, and where another process has the same pid now.
    """
    if os.name != "posix" or host != platform.node() or pid <= 0:
        return "unknown"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        return "alive"  # a process of another user
    try:
        # "pid (name) state ppid ...": the name may hold anything, so read from its closing parenthesis.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if (pid, started_unix_s) in _known:
            return "gone" if fields[0] in "ZX" or fields[19] != _known[pid, started_unix_s] else "alive"
        boot = next(
            int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line[:6] == "btime "
        )
    except (OSError, StopIteration):
        return "alive"  # there is no /proc
    born = boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    if fields[0] in "ZX" or born > started_unix_s + _SLACK_S:
        return "gone"
    _known[pid, started_unix_s] = fields[19]
    return "alive"
