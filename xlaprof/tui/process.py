"""Whether the process that writes a log is still there."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from xlaprof.tui.snapshot import Process

#: The kernel counts a process's start in hundredths of a second since boot: allow for its rounding.
_SLACK_S = 2.0


def look(pid: int, host: str, started_unix_s: float) -> Process:
    """The fate of process ``pid`` on ``host`` that was running at unix time ``started_unix_s``.

    "unknown" for another machine (or container: its host name differs) and where the system has no
    signal 0. A zombie, and another process that has been given the same pid since, count as "gone".
    """
    if os.name != "posix" or host != platform.node() or pid <= 0:
        return "unknown"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        return "alive"  # somebody else's, but there
    try:
        # "pid (name) state ppid ...": the name may hold anything, so read from its closing parenthesis.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = next(
            int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line[:6] == "btime "
        )
    except (OSError, StopIteration):
        return "alive"  # no /proc: the signal's word is all there is
    born = boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return "gone" if fields[0] in "ZX" or born > started_unix_s + _SLACK_S else "alive"
