"""Blind hyperspectral unmixing of two sensors' scenes: endmember spectra and per-pixel abundances by Adam.

Model: pixel = softmax(A / tau) @ exp(S) + bilinear scattering term. tau is annealed, so that abundances become sparse.
The two sensors have their own number of bands; a scene is fitted for each.
"""
import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

SENSORS = {"AVIRIS-like": 96, "EnMAP-like": 144}
PIXELS, MATERIALS, ITERATIONS, REPORT = 64 * 64, 5, 1200, 200


def scene(rng, bands):
    """Smooth spectra, patchy abundances, a little bilinear mixing and noise."""
    grid = np.linspace(0, 1, bands)
    spectra = np.full((MATERIALS, bands), 0.15)
    for m in range(MATERIALS):
        for _ in range(4):
            spectra[m] += rng.uniform(0.1, 0.5) * np.exp(-((grid - rng.uniform()) / rng.uniform(0.05, 0.3)) ** 2)
    side = int(PIXELS ** 0.5)
    field = rng.normal(size=(MATERIALS, side, side))
    kernel = np.exp(-(np.fft.fftfreq(side) * 20) ** 2)
    smooth = np.fft.ifft2(np.fft.fft2(field) * kernel[:, None] * kernel[None, :]).real
    smooth = smooth / smooth.std() * 2.5
    abundance = np.exp(smooth) / np.exp(smooth).sum(0)
    abundance = abundance.reshape(MATERIALS, -1).T
    pixels = abundance @ spectra
    pixels = pixels + 0.1 * (abundance[:, :1] * abundance[:, 1:2]) * (spectra[0] * spectra[1])
    pixels += rng.normal(0, 0.01, pixels.shape)
    return pixels.astype(np.float32), spectra.astype(np.float32), abundance.astype(np.float32)


def farthest_pixels(pixels, count):
    """Pure-ish pixels as the first guess: successive projections, as in SPA. Runs once per scene, on the host."""
    residual, chosen = pixels.copy(), []
    for _ in range(count):
        j = int(np.argmax((residual ** 2).sum(1)))
        chosen.append(j)
        v = residual[j] / np.linalg.norm(residual[j])
        residual = residual - np.outer(residual @ v, v)
    return pixels[chosen]


def spectral_angle(estimate, truth):
    e = estimate / np.linalg.norm(estimate, axis=1, keepdims=True)
    t = truth / np.linalg.norm(truth, axis=1, keepdims=True)
    return np.degrees(np.arccos(np.clip(e @ t.T, -1, 1))).min(1)


class Unmixing(nn.Module):
    def __init__(self, first_guess):
        super().__init__()
        self.log_spectra = nn.Parameter(torch.log(first_guess.clamp_min(1e-3)))
        self.logits = nn.Parameter(torch.zeros(PIXELS, MATERIALS))
        self.scatter = nn.Parameter(torch.zeros(MATERIALS * (MATERIALS - 1) // 2))
        self.register_buffer("tau", torch.ones(()))
        upper = torch.triu_indices(MATERIALS, MATERIALS, 1)
        self.register_buffer("pick_i", nn.functional.one_hot(upper[0], MATERIALS).float().T.contiguous())
        self.register_buffer("pick_j", nn.functional.one_hot(upper[1], MATERIALS).float().T.contiguous())

    def abundances(self):
        return torch.softmax(self.logits / self.tau, 1)

    def forward(self):
        a, s = self.abundances(), torch.exp(self.log_spectra)
        pairs = (a @ self.pick_i) * (a @ self.pick_j) * torch.tanh(self.scatter)
        return a @ s + pairs @ ((self.pick_i.T @ s) * (self.pick_j.T @ s))

    def loss(self, pixels):
        a = self.abundances()
        image = a.T.reshape(MATERIALS, 64, 64)
        roughness = (image[:, 1:] - image[:, :-1]).abs().mean() + (image[:, :, 1:] - image[:, :, :-1]).abs().mean()
        smoothness = (self.log_spectra[:, 2:] - 2 * self.log_spectra[:, 1:-1] + self.log_spectra[:, :-2]).pow(2).mean()
        return (self.forward() - pixels).pow(2).mean() * 1e2 + 0.02 * roughness + 0.1 * smoothness


def fit(pixels, device):
    target = torch.from_numpy(pixels).to(device)
    model = Unmixing(torch.from_numpy(farthest_pixels(pixels, MATERIALS))).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    total, before = torch.zeros((), device=device), 0.0
    for iteration in range(1, ITERATIONS + 1):
        optimizer.zero_grad()
        loss = model.loss(target)
        loss.backward()
        xm.optimizer_step(optimizer)
        schedule.step()
        model.tau.mul_(0.9995)
        total += loss.detach()
        torch_xla.sync()
        if iteration % REPORT == 0:
            so_far = total.item()
            print(f"   {iteration:5d}  loss {(so_far - before) / REPORT:.4f}  tau {model.tau.item():.3f}", flush=True)
            before = so_far
    with torch.no_grad():
        spectra, fractions = torch.exp(model.log_spectra), model.abundances()
        torch_xla.sync()
    return spectra.cpu().numpy(), fractions.cpu().numpy()


def main():
    device = torch_xla.device()
    rng = np.random.default_rng(17)
    for sensor, bands in SENSORS.items():
        pixels, spectra, abundance = scene(rng, bands)
        print(f"{sensor}: {bands} bands")
        estimate, fractions = fit(pixels, device)
        print("   spectral angles (degrees):", np.round(np.sort(spectral_angle(estimate, spectra)), 2))
        print(f"   pixels with one material above 90%: {(fractions.max(1) > 0.9).mean():.2f}, "
              f"truth {(abundance.max(1) > 0.9).mean():.2f}")


if __name__ == "__main__":
    main()
