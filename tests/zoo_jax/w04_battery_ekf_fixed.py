"""State of charge of a lithium cell: extended Kalman filter and parameter fit.

A first-order Thevenin model.  The resistances are fitted on one driving cycle,
the filter then follows a second one and warns of low charge.
"""
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

DT = 1.0
CAPACITY = 2.6 * 3600.0


class Cell(NamedTuple):
    log_r0: jax.Array
    log_r1: jax.Array
    log_c1: jax.Array
    ocv: jax.Array


class Belief(NamedTuple):
    mean: jax.Array
    cov: jax.Array


def default_cell():
    return Cell(
        log_r0=jnp.log(jnp.float32(0.05)),
        log_r1=jnp.log(jnp.float32(0.02)),
        log_c1=jnp.log(jnp.float32(1500.0)),
        ocv=jnp.array([3.0, 0.9, -0.5, 0.75], jnp.float32),
    )


def open_circuit(cell, soc):
    return cell.ocv[0] + soc * (cell.ocv[1] + soc * (cell.ocv[2] + soc * cell.ocv[3]))


def propagate(cell, x, current):
    soc, v1 = x
    r1, c1 = jnp.exp(cell.log_r1), jnp.exp(cell.log_c1)
    decay = jnp.exp(-DT / (r1 * c1))
    return jnp.stack([soc - DT * current / CAPACITY, decay * v1 + r1 * (1.0 - decay) * current])


def terminal_voltage(cell, x, current):
    return open_circuit(cell, x[0]) - x[1] - jnp.exp(cell.log_r0) * current


def drive_cycle(n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    current = 1.5 + 1.2 * np.sin(t / 17.0) + 1.0 * (rng.random(n) < 0.15) * rng.uniform(1, 4, n)
    current[(t // 60) % 5 == 4] = -0.8
    r0, r1, c1 = 0.071, 0.031, 1100.0
    soc, v1, volts, socs = 0.95, 0.0, [], []
    for i in current:
        soc -= DT * i / CAPACITY
        v1 = np.exp(-DT / (r1 * c1)) * v1 + r1 * (1 - np.exp(-DT / (r1 * c1))) * i
        ocv = 3.0 + soc * (0.9 + soc * (-0.5 + soc * 0.75))
        volts.append(ocv - v1 - r0 * i + rng.normal(0, 0.004))
        socs.append(soc)
    return current.astype(np.float32), np.array(volts, np.float32), np.array(socs, np.float32)


def simulate(cell, soc0, currents):
    def tick(x, current):
        x = propagate(cell, x, current)
        return x, terminal_voltage(cell, x, current)

    return jax.lax.scan(tick, jnp.stack([soc0, jnp.zeros(())]), currents)[1]


def fit_cell(cell, currents, volts, steps=300):
    optim = optax.adam(optax.exponential_decay(0.05, 100, 0.7))

    def mismatch(cell):
        sim = simulate(cell, jnp.float32(0.95), currents)
        prior = 0.01 * (cell.log_c1 - jnp.log(1500.0)) ** 2
        return jnp.mean((sim - volts) ** 2) * 1e4 + prior

    @jax.jit
    def update(cell, opt_state):
        value, grads = jax.value_and_grad(mismatch)(cell)
        updates, opt_state = optim.update(grads, opt_state, cell)
        return optax.apply_updates(cell, updates), opt_state, value

    opt_state = optim.init(cell)
    for step in range(steps):
        cell, opt_state, value = update(cell, opt_state)
        if step % 100 == 0 or step == steps - 1:
            print(f"fit {step:4d}  mismatch {float(value):.4f}")
    return cell


PROCESS = jnp.diag(jnp.array([1e-9, 1e-7]))
MEASURE = 2.5e-5


def assimilate(cell, belief, current, voltage):
    jac = jax.jacfwd(propagate, argnums=1)(cell, belief.mean, current)
    mean = propagate(cell, belief.mean, current)
    cov = jac @ belief.cov @ jac.T + PROCESS
    h = jax.grad(terminal_voltage, argnums=1)(cell, mean, current)
    innovation = voltage - terminal_voltage(cell, mean, current)
    s = h @ cov @ h + MEASURE
    gain = cov @ h / s
    mean = mean + gain * innovation
    cov = (jnp.eye(2) - jnp.outer(gain, h)) @ cov
    return Belief(mean, 0.5 * (cov + cov.T)), innovation**2 / s


@jax.jit
def filter_trip(cell, belief, currents, volts):
    def tick(belief, reading):
        belief, ratio = assimilate(cell, belief, *reading)
        return belief, (belief.mean[0], ratio)

    return jax.lax.scan(tick, belief, (currents, volts))[1]


def replay(cell, currents, volts, low=0.6):
    belief = Belief(jnp.array([0.8, 0.0]), jnp.diag(jnp.array([0.04, 1e-4])))
    track, nis = jax.device_get(filter_trip(cell, belief, currents, volts))
    below = np.flatnonzero(track < low)
    return track, nis, int(below[0]) if below.size else None


def main():
    began = time.perf_counter()
    cur_fit, volt_fit, _ = drive_cycle(60, seed=1)
    cell = fit_cell(default_cell(), jnp.asarray(cur_fit), jnp.asarray(volt_fit))
    print(
        f"R0 {float(jnp.exp(cell.log_r0)) * 1e3:.1f} mOhm  R1 {float(jnp.exp(cell.log_r1)) * 1e3:.1f} mOhm "
        f"({time.perf_counter() - began:.1f}s)"
    )
    for trip in range(3):
        currents, volts, socs = drive_cycle(3000, seed=10 + trip)
        track, nis, warned = replay(cell, currents, volts)
        error = np.abs(track[600:] - socs[600:]).mean()
        print(
            f"trip {trip}: mean SoC error {error:.4f}, NIS {nis[100:].mean():.2f}, low charge at {warned} s, "
            f"{time.perf_counter() - began:.1f}s"
        )


if __name__ == "__main__":
    main()
