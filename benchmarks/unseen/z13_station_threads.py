"""Quality control of weather-station telemetry: reader threads, one compiled robust filter."""
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F

WINDOWS = (64, 128)      # samples per packet after padding; radios send 33 to 128
STATIONS_PER_PACKET = 16
VARIABLES = ("temperature", "pressure", "wind", "humidity")


def robust_filter(values, valid, gain):
    """Iteratively reweighted local-level smoother; returns smoothed values and anomaly scores."""
    kernel = torch.exp(-torch.linspace(-2, 2, 15) ** 2)
    kernel = (kernel / kernel.sum()).expand(values.shape[1], 1, 15)
    weight = valid
    for _ in range(3):
        top = F.conv1d(values * weight, kernel, padding=7, groups=values.shape[1])
        bottom = F.conv1d(weight, kernel, padding=7, groups=values.shape[1])
        level = top / bottom.clamp(min=1e-4)
        residual = (values - level) * valid
        spread = (residual.square() * weight).sum(-1, keepdim=True) / weight.sum(-1, keepdim=True).clamp(min=1)
        z = residual / (spread + 1e-6).sqrt()
        weight = valid * torch.sigmoid(gain * (3 - z.abs()))
    return level, z.abs() * valid


class QualityControl:
    def __init__(self):
        self.filter = torch.compile(robust_filter)
        self.gain = torch.tensor(4.0)
        self.flags = {name: 0 for name in VARIABLES}
        self.samples = 0
        self.lock = threading.Lock()

    def warm_up(self):
        """Compile before the readers start, one graph for each window."""
        with torch.inference_mode():
            for window in WINDOWS:
                blank = torch.randn(STATIONS_PER_PACKET, len(VARIABLES), window)
                self.filter(blank, torch.ones_like(blank), self.gain)

    @torch.inference_mode()
    def inspect(self, packet):
        values, valid = pad(packet)
        level, score = self.filter(values, valid, self.gain)
        per_variable = (score > 5).sum((0, 2)).tolist()
        with self.lock:
            for name, n in zip(VARIABLES, per_variable):
                self.flags[name] += n
            self.samples += packet.shape[0] * packet.shape[-1]
        return level[..., : packet.shape[-1]]


def pad(packet):
    window = next(w for w in WINDOWS if w >= packet.shape[-1])
    missing = window - packet.shape[-1]
    return F.pad(packet, (0, missing)), F.pad(torch.ones_like(packet), (0, missing))


def radio(seed, packets):
    g = torch.Generator().manual_seed(seed)
    rng = random.Random(seed)
    for _ in range(packets):
        n = rng.randint(33, 128)
        drift = torch.cumsum(0.1 * torch.randn(STATIONS_PER_PACKET, len(VARIABLES), n, generator=g), -1)
        spikes = (torch.rand(drift.shape, generator=g) < 0.003) * 6.0
        yield drift + 0.2 * torch.randn(drift.shape, generator=g) + spikes


def reader(control, seed, packets):
    smoothed = 0.0
    for k, packet in enumerate(radio(seed, packets)):
        level = control.inspect(packet)
        smoothed = 0.95 * smoothed + 0.05 * level.mean()
        if k % 250 == 249:
            print(f"reader {seed}: {k + 1} packets, mean level {float(smoothed):+.3f}")
    return packets


def main():
    control = QualityControl()
    control.warm_up()
    began = time.perf_counter()
    with ThreadPoolExecutor(max_workers=3) as pool:
        done = sum(pool.map(lambda seed: reader(control, seed, 1500), range(3)))
    seconds = time.perf_counter() - began
    print(f"{done} packets, {control.samples} samples, {done / seconds:.0f} packets/s")
    for name, n in control.flags.items():
        print(f"  {name}: {n} flagged")


if __name__ == "__main__":
    main()
