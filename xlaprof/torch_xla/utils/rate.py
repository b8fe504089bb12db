"""``xm.RateTracker``: examples per second, smoothed."""

from __future__ import annotations

import os
import time


class RateTracker:
    """:meth:`add` counts; :meth:`rate` covers the time since its last call, :meth:`global_rate` all time.

    ``smooth_factor`` (0.4, or ``RATE_TRACKER_SMOOTHING``) is the weight of the previous rate.
    """

    def __init__(self, smooth_factor: float | None = None) -> None:
        self._smooth = (
            float(os.environ.get("RATE_TRACKER_SMOOTHING", "0.4")) if smooth_factor is None else smooth_factor
        )
        self._began = self._last_call = time.time()
        self._fresh = self._before = 0.0
        self._rate: float | None = None

    def add(self, count: float) -> None:
        """``count`` more examples."""
        self._fresh += count

    def rate(self) -> float:
        """Examples per second."""
        now = time.time()
        if now <= self._last_call:
            return 0.0
        current = self._fresh / (now - self._last_call)
        if self._rate is not None:
            current = (1 - self._smooth) * current + self._smooth * self._rate
        self._before, self._fresh = self._before + self._fresh, 0.0
        self._last_call, self._rate = now, current
        return current

    def global_rate(self) -> float:
        """Examples per second since this was made."""
        passed = time.time() - self._began
        return (self._before + self._fresh) / passed if passed > 0 else 0.0
