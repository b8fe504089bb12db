"""Museum audio-guide kiosks: a worker pool answers "which exhibit is this photo of?" requests."""
import logging
import queue
import threading
import time
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("kiosk")
DESCRIPTOR, EXHIBITS = 48, 200


@dataclass
class Request:
    descriptors: torch.Tensor
    arrived: float = field(default_factory=time.perf_counter)
    answer: int = -1
    latency: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)


class ExhibitMatcher(nn.Module):
    """Pools local descriptors with learned attention and scores every exhibit."""

    def __init__(self, width=64):
        super().__init__()
        self.project = nn.Sequential(nn.Linear(DESCRIPTOR, width), nn.GELU(), nn.LayerNorm(width))
        self.gate = nn.Linear(width, 4)
        self.mix = nn.Linear(4 * width, width)
        self.exhibits = nn.Parameter(torch.randn(EXHIBITS, width))

    def forward(self, descriptors):
        h = self.project(descriptors)
        weights = self.gate(h).softmax(0)
        pooled = self.mix((weights.T @ h).flatten())
        return F.normalize(self.exhibits, dim=1) @ F.normalize(pooled, dim=0)


class Pool:
    def __init__(self, matcher, workers):
        self.matcher = torch.compile(matcher, dynamic=True)
        self.inbox = queue.Queue()
        self.threads = [threading.Thread(target=self._serve, name=f"worker-{i}", daemon=True)
                        for i in range(workers)]

    def start(self):
        with torch.no_grad():
            for size in (32, 64):
                self.matcher(torch.randn(size, DESCRIPTOR))
        log.info("warm")
        for thread in self.threads:
            thread.start()

    def _serve(self):
        while True:
            request = self.inbox.get()
            if request is None:
                return
            with torch.no_grad():
                scores = self.matcher(request.descriptors)
            request.answer = int(scores.argmax())
            request.latency = time.perf_counter() - request.arrived
            request.done.set()

    def stop(self):
        for _ in self.threads:
            self.inbox.put(None)
        for thread in self.threads:
            thread.join()


def visitors(count, seed):
    """Photos yield between 20 and 90 local descriptors."""
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        n = int(torch.randint(20, 91, (1,), generator=g))
        yield Request(torch.randn(n, DESCRIPTOR, generator=g))


def report(requests):
    latency = torch.tensor([r.latency for r in requests])
    p50, p95 = latency.quantile(0.5).item(), latency.quantile(0.95).item()
    favourites = torch.tensor([r.answer for r in requests]).bincount(minlength=EXHIBITS)
    log.info("%d answers, p50 %.1f ms, p95 %.1f ms, busiest exhibit %d",
             len(requests), 1e3 * p50, 1e3 * p95, favourites.argmax())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(9)
    pool = Pool(ExhibitMatcher().eval(), workers=3)
    pool.start()
    for hour in range(5):
        requests = list(visitors(400, hour))
        for request in requests:
            pool.inbox.put(request)
        for request in requests:
            request.done.wait()
        report(requests)
    pool.stop()


if __name__ == "__main__":
    main()
