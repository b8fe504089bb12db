"""Pharmacokinetics: a neural ODE learns the elimination of a drug from plasma samples.

Absorption is the known first-order term, elimination and peripheral exchange are an MLP.
Patients take repeated oral doses; the horizon grows in two stages.
"""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

DT = 0.5                       # hours
KA = 0.9                       # absorption 1/h
STAGES = ((12, 60), (30, 100))  # (hours, training steps)
DOSE_EVERY = 8


class Elimination(eqx.Module):
    net: eqx.nn.MLP

    def __init__(self, key):
        self.net = eqx.nn.MLP(4, 2, 24, 2, activation=jax.nn.tanh, key=key)

    def __call__(self, plasma, tissue, covariates):
        flow = self.net(jnp.concatenate([jnp.stack([plasma, tissue]), covariates]))
        return jax.nn.softplus(flow[0]) * plasma, 0.1 * flow[1]


def rates(field, state, cov):
    gut, plasma, tissue = state
    elim, exch = field(plasma, tissue, cov)
    return jnp.stack([-KA * gut, KA * gut - elim - exch, exch])


def rk4(field, state, cov):
    k1 = rates(field, state, cov)
    k2 = rates(field, state + 0.5 * DT * k1, cov)
    k3 = rates(field, state + 0.5 * DT * k2, cov)
    k4 = rates(field, state + DT * k3, cov)
    return state + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def simulate(field, dose, cov, hours):
    """Plasma concentration on the grid of DT."""
    state = jnp.zeros(3)
    plasma = []
    for k in range(int(hours / DT)):
        if (k * DT) % DOSE_EVERY == 0:
            state = state.at[0].add(dose)
        state = rk4(field, state, cov)
        plasma.append(state[1])
    return jnp.stack(plasma)


def true_curve(dose, cov, hours):
    """Two compartments with Michaelis-Menten elimination (numpy, fine Euler steps)."""
    n, sub = len(dose), 20
    gut, plasma, tissue = np.zeros(n), np.zeros(n), np.zeros(n)
    vmax, km = 0.5 + 0.3 * cov[:, 0], 0.8 + 0.2 * cov[:, 1]
    out = []
    for k in range(int(hours / DT)):
        if (k * DT) % DOSE_EVERY == 0:
            gut = gut + dose
        for _ in range(sub):
            h = DT / sub
            absorbed = KA * gut
            elim = vmax * plasma / (km + plasma)
            exch = 0.2 * plasma - 0.1 * tissue
            gut = gut - h * absorbed
            plasma = plasma + h * (absorbed - elim - exch)
            tissue = tissue + h * exch
        out.append(plasma)
    return np.stack(out, 1).astype(np.float32)


def cohort(n, seed):
    rng = np.random.default_rng(seed)
    dose = rng.uniform(1.0, 3.0, n).astype(np.float32)
    cov = rng.normal(size=(n, 2)).astype(np.float32) * 0.5
    curve = true_curve(dose, cov, STAGES[-1][0])
    sampled = rng.random(curve.shape) < 0.15     # blood samples are sparse
    noisy = curve + 0.05 * rng.normal(size=curve.shape)
    return dose, cov, noisy.astype(np.float32), sampled.astype(np.float32), curve


def make_step(optim, hours):
    @eqx.filter_jit
    def step(field, opt_state, dose, cov, obs, mask):
        def loss_fn(f):
            pred = jax.vmap(lambda d, c: simulate(f, d, c, hours))(dose, cov)
            return jnp.sum(mask * (pred - obs) ** 2) / jnp.sum(mask)

        loss, grads = eqx.filter_value_and_grad(loss_fn)(field)
        updates, opt_state = optim.update(grads, opt_state)
        return eqx.apply_updates(field, updates), opt_state, loss

    return step


def main():
    dose, cov, obs, mask, curve = cohort(48, 0)
    field = Elimination(jax.random.key(7))
    for hours, steps in STAGES:
        grid = int(hours / DT)
        optim = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))
        opt_state = optim.init(eqx.filter(field, eqx.is_array))
        step = make_step(optim, hours)
        data = jax.device_put((dose, cov, obs[:, :grid], mask[:, :grid]))
        for i in range(steps):
            field, opt_state, loss = step(field, opt_state, *data)
            if (i + 1) % 20 == 0:
                print(f"{hours:3d} h step {i + 1:4d} mse {float(loss):.4f}", flush=True)
    print("true plasma at the end:", np.round(curve[:4, -1], 3))


if __name__ == "__main__":
    main()
