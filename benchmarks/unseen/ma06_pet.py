"""Dynamic PET: OSEM reconstruction of the frames of a small-animal scan, then a Patlak slope image."""
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm

SIDE, ANGLES, BINS = 64, 60, 91
SUBSETS, ITERATIONS, FRAMES = 10, 18, 5


def strip_matrix():
    """System matrix (angles * bins, pixels): a pixel spreads over the two nearest bins, blurred by the detectors."""
    c = np.arange(SIDE) - (SIDE - 1) / 2
    x, y = np.meshgrid(c, c)
    x, y = x.ravel(), y.ravel()
    matrix = np.zeros((ANGLES * BINS, SIDE * SIDE), np.float32)
    pixel = np.arange(SIDE * SIDE)
    for a, angle in enumerate(np.linspace(0, np.pi, ANGLES, endpoint=False)):
        s = x * np.cos(angle) + y * np.sin(angle) + (BINS - 1) / 2
        low = np.floor(s).astype(int)
        for shift, blur in ((-1, 0.15), (0, 0.7), (1, 0.15)):
            for side, weight in ((0, 1 - (s - low)), (1, s - low)):
                b = np.clip(low + shift + side, 0, BINS - 1)
                matrix[a * BINS + b, pixel] += (blur * weight).astype(np.float32)
    return matrix


def phantom(frame):
    """Activity of a frame: blood pool washes out, tumour and heart take up."""
    c = np.linspace(-1, 1, SIDE)
    x, y = np.meshgrid(c, c)
    t = frame + 1.0
    image = np.where(x ** 2 / 0.7 + y ** 2 / 0.5 < 1, 1.0 + 2.0 * np.exp(-t / 2), 0.0)
    image += np.where((x + 0.3) ** 2 + (y - 0.2) ** 2 < 0.03, 1.2 * t, 0.0)
    image += np.where((x - 0.25) ** 2 + (y + 0.15) ** 2 < 0.06, 0.5 * t, 0.0)
    return image.astype(np.float32).ravel()


class Scanner:
    """Geometry and corrections of the scanner, by ordered subset of the angles."""

    def __init__(self, matrix, attenuation, device):
        self.matrix = matrix.reshape(ANGLES, BINS, -1)
        self.attenuation = attenuation.reshape(ANGLES, BINS)
        self.device = device

    def subset(self, s):
        rows = self.matrix[s::SUBSETS] * self.attenuation[s::SUBSETS, :, None]
        return torch.from_numpy(rows.reshape(-1, SIDE * SIDE)).to(self.device)

    def project(self, image, s):
        return self.subset(s) @ image

    def back_project(self, data, s):
        return data @ self.subset(s)

    def sensitivity(self, s):
        system = self.subset(s)
        return (system * torch.ones(system.shape[0], 1, device=self.device)).sum(0) + 1e-4


class Osem:
    def __init__(self, scanner, device):
        self.scanner, self.device = scanner, device

    def smooth(self, image, weight=0.05):
        """One-step-late quadratic prior: the mean difference to the four neighbours."""
        z = image.reshape(SIDE, SIDE)
        around = (torch.roll(z, 1, 0) + torch.roll(z, -1, 0) + torch.roll(z, 1, 1) + torch.roll(z, -1, 1)) / 4
        return weight * (z - around).reshape(-1)

    def update(self, image, counts, background, s):
        expected = self.scanner.project(image, s) + background
        ratio = counts / expected
        gain = self.scanner.back_project(ratio, s)
        return image * gain / (self.scanner.sensitivity(s) + self.smooth(image)).clamp_min(1e-4)

    def reconstruct(self, sinogram, background):
        counts = [torch.from_numpy(np.ascontiguousarray(sinogram[s::SUBSETS]).ravel()).to(self.device)
                  for s in range(SUBSETS)]
        background = torch.tensor(background, device=self.device)
        image = torch.ones(SIDE * SIDE, device=self.device)
        for _ in range(ITERATIONS):
            for s in np.random.default_rng(0).permutation(SUBSETS):
                image = self.update(image, counts[s], background, s)
                torch_xla.sync()
        return image


def main():
    rng = np.random.default_rng(2)
    device = torch_xla.device()
    matrix = strip_matrix()
    body = (phantom(0) > 0).astype(np.float32)
    attenuation = np.exp(-0.01 * (matrix @ body)).astype(np.float32)
    osem = Osem(Scanner(matrix, attenuation, device), device)
    frames = []
    for frame in range(FRAMES):
        truth = phantom(frame)
        clean = attenuation * (matrix @ truth)
        counts = rng.poisson(20 * (clean + 0.5)).astype(np.float32) / 20
        image = osem.reconstruct(counts.reshape(ANGLES, BINS), 0.5)
        frames.append(image)
        error = (image - torch.from_numpy(truth).to(device)).norm() / float(np.linalg.norm(truth))
        print(f"frame {frame}: total activity {image.sum().item():9.1f}, relative error {error.item():.3f}", flush=True)
    series = torch.stack(frames)
    time = torch.arange(FRAMES, device=device, dtype=torch.float32) + 1
    centred = time - time.mean()
    slope = (centred[:, None] * series).sum(0) / (centred ** 2).sum()
    hot = slope.reshape(SIDE, SIDE).cpu().numpy()
    print("highest uptake rate", round(float(hot.max()), 2), "at", np.unravel_index(hot.argmax(), hot.shape))


if __name__ == "__main__":
    main()
