"""Delay-and-sum beamforming of plane-wave ultrasound frames, with coherent compounding and a Doppler estimate."""
import argparse
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

SOUND, FS = 1540.0, 20e6


@dataclasses.dataclass(frozen=True)
class Probe:
    channels: int = 32
    pitch: float = 3e-4
    centre_freq: float = 4e6

    @property
    def positions(self):
        return (np.arange(self.channels) - (self.channels - 1) / 2) * self.pitch


@dataclasses.dataclass(frozen=True)
class ImageGrid:
    width: int = 40
    depth: int = 96
    z_min: float = 8e-3
    z_max: float = 2.4e-2

    def pixels(self, probe):
        x = np.linspace(probe.positions[0], probe.positions[-1], self.width)
        z = np.linspace(self.z_min, self.z_max, self.depth)
        xx, zz = np.meshgrid(x, z)
        return np.stack([xx.ravel(), zz.ravel()], -1)


def delay_tables(probe, grid, angles):
    """Sample index and apodisation for each angle, pixel and channel."""
    px = grid.pixels(probe)
    receive = np.hypot(px[:, None, 0] - probe.positions[None], px[:, None, 1])
    tables, weights = [], []
    for angle in angles:
        transmit = px[:, 1] * np.cos(angle) + px[:, 0] * np.sin(angle)
        tables.append((transmit[:, None] + receive) / SOUND * FS)
        aperture = px[:, None, 1] / 1.5
        inside = np.abs(px[:, None, 0] - probe.positions[None]) < aperture / 2 + probe.pitch
        w = inside * np.cos(np.pi / 2 * np.abs(px[:, None, 0] - probe.positions[None]) / (aperture / 2 + probe.pitch))
        weights.append(w / w.sum(1, keepdims=True))
    return np.stack(tables).astype(np.float32), np.stack(weights).astype(np.float32)


def echoes(probe, angles, scatterers, samples):
    t = np.arange(samples) / FS
    rf = np.zeros((len(angles), probe.channels, samples))
    for x, z, amp in scatterers:
        receive = np.hypot(x - probe.positions, z)
        for a, angle in enumerate(angles):
            arrival = (z * np.cos(angle) + x * np.sin(angle) + receive) / SOUND
            dt = t[None] - arrival[:, None]
            rf[a] += amp * np.exp(-(dt * probe.centre_freq) ** 2) * np.cos(2 * np.pi * probe.centre_freq * dt)
    return rf


def acquire(probe, angles, tissue, flow, speed, prf, frames, samples, rng):
    """Raw data of a whole acquisition: tissue at rest and a few scatterers that move away from the probe."""
    rest = echoes(probe, angles, tissue, samples)
    out = np.empty((frames, *rest.shape), np.float32)
    for k in range(frames):
        moved = [(x, z + speed * k / prf, amp) for x, z, amp in flow]
        out[k] = rest + echoes(probe, angles, moved, samples) + rng.normal(0, 0.05, rest.shape)
    return out


@jax.jit
def analytic(rf):
    n = rf.shape[-1]
    gain = np.zeros(n, np.float32)
    gain[0], gain[1:n // 2], gain[n // 2] = 1, 2, 1
    return jnp.fft.ifft(jnp.fft.fft(rf) * gain)


@jax.jit
def beamform_line(iq, delays, weights):
    """One image line (fixed lateral position, all depths) from the analytic channel data."""
    channel = jnp.arange(iq.shape[0])
    low = jnp.floor(delays).astype(jnp.int32)
    frac = delays - low
    samples = iq[channel, low] * (1 - frac) + iq[channel, low + 1] * frac
    return jnp.sum(weights * samples, axis=-1)


def compound_image(rf, delays, weights, grid):
    image = jnp.zeros((grid.depth, grid.width), jnp.complex64)
    for a in range(rf.shape[0]):
        iq = analytic(rf[a])
        for col in range(grid.width):
            image = image.at[:, col].add(beamform_line(iq, delays[a, :, col], weights[a, :, col]))
    return image / rf.shape[0]


@jax.jit
def lag_one(images):
    """Mean phase shift from frame to frame, and power, over a slow-time ensemble without its resting part."""
    moving = images - jnp.mean(images, 0)
    r = jnp.mean(moving[1:] * jnp.conj(moving[:-1]), 0)
    return jnp.angle(r), jnp.mean(jnp.abs(images) ** 2, 0)


def log_compress(power, floor_db=-50.0):
    db = 10 * np.log10(power / power.max() + 1e-12)
    return np.clip(db, floor_db, 0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--frames", type=int, default=32)
    ap.add_argument("--prf", type=float, default=2000.0)
    ap.add_argument("--speed", type=float, default=0.05, help="of the moving scatterers, m/s")
    args = ap.parse_args()

    rng = np.random.default_rng(6)
    probe, grid = Probe(), ImageGrid()
    angles = np.deg2rad([-6.0, 0.0, 6.0])
    delays, weights = delay_tables(probe, grid, angles)
    samples = int(2 ** np.ceil(np.log2(delays.max() + 2)))
    still = [(rng.uniform(-5e-3, 5e-3), rng.uniform(9e-3, 2.3e-2), 1.0) for _ in range(6)]
    flow = [(0.0, 1.6e-2, 1.2)]
    acquisition = acquire(probe, angles, still, flow, args.speed, args.prf, args.frames, samples, rng)

    table_shape = (len(angles), grid.depth, grid.width, probe.channels)
    delays, weights = jnp.asarray(delays.reshape(table_shape)), jnp.asarray(weights.reshape(table_shape))
    offset = grid.pixels(probe) - np.array([0.0, 1.6e-2])
    vessel = (np.hypot(offset[:, 0], offset[:, 1]) < 6e-4).reshape(grid.depth, grid.width)

    compounds, velocity = [], []
    for rf in acquisition:
        compounds.append(compound_image(rf, delays, weights, grid))
        if len(compounds) < 4:
            continue
        phase, power = lag_one(jnp.stack(compounds))
        speed = np.asarray(phase)[vessel] * SOUND * args.prf / (4 * np.pi * probe.centre_freq)
        velocity.append(np.median(speed))
        if len(compounds) % 8 == 0:
            print(f"frame {len(compounds):3d}  vessel {velocity[-1] * 1e3:+.1f} mm/s")

    image = log_compress(np.asarray(power))
    print(f"{args.frames} frames, image {image.shape}, mean level {image.mean():.1f} dB")
    print(f"speed in the vessel {abs(velocity[-1]) * 1e3:.1f} mm/s (set {args.speed * 1e3:.1f})")


if __name__ == "__main__":
    main()
