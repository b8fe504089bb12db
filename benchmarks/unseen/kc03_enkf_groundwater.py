"""Ensemble smoother (ES-MDA) for a groundwater model: recover a log-conductivity
field on a 1-D-column stack from head measurements in a pumping test."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

NX = 96
STEPS = 2400
DT = 0.005
N_ENS = 80
WELLS = np.array([8, 20, 31, 44, 57, 63, 78, 90])
STORAGE = 0.35


def covariance(n, length, sd):
    x = jnp.arange(n)
    d = jnp.abs(x[:, None] - x[None, :]) / length
    return sd ** 2 * (jnp.exp(-d) + 1e-6 * jnp.eye(n))


class Aquifer(eqx.Module):
    log_k: jax.Array
    recharge: jax.Array
    boundary: float = eqx.field(static=True, default=10.0)

    def conductance(self):
        k = jnp.exp(self.log_k)
        inner = 2 * k[:-1] * k[1:] / (k[:-1] + k[1:])
        return inner

    def system(self):
        c = self.conductance()
        diag = jnp.zeros(NX).at[:-1].add(c).at[1:].add(c)
        diag = diag.at[0].add(jnp.exp(self.log_k[0])).at[-1].add(jnp.exp(self.log_k[-1]))
        lap = jnp.diag(diag) - jnp.diag(c, 1) - jnp.diag(c, -1)
        return jnp.eye(NX) * STORAGE / DT + lap

    def implicit_step(self, head, pumping):
        """One backward-Euler step of S dh/dt = div(K grad h) + q."""
        rhs = head * STORAGE / DT + self.recharge - pumping
        rhs = rhs.at[0].add(jnp.exp(self.log_k[0]) * self.boundary)
        rhs = rhs.at[-1].add(jnp.exp(self.log_k[-1]) * self.boundary)
        return jnp.linalg.solve(self.system(), rhs)


def pumping_schedule():
    t = jnp.arange(STEPS)
    on = ((t // 400) % 2).astype(jnp.float32)
    field = jnp.zeros((STEPS, NX))
    return field.at[:, 37].set(0.6 * on).at[:, 70].set(0.4 * (1 - on))


def simulate(model, schedule):
    head0 = jnp.full(NX, model.boundary)

    def body(head, q):
        head = model.implicit_step(head, q)
        return head, head[WELLS]

    _, obs = jax.lax.scan(body, head0, schedule)
    return obs[199::200].reshape(-1)


@eqx.filter_jit
def forecast(ensemble, recharge, schedule):
    return jax.vmap(lambda lk: simulate(Aquifer(lk, recharge), schedule))(ensemble)


@jax.jit
def mda_update(ensemble, predicted, data, noise_sd, alpha, key):
    n = ensemble.shape[0]
    da = predicted - predicted.mean(0)
    xa = ensemble - ensemble.mean(0)
    cdd = da.T @ da / (n - 1)
    cxd = xa.T @ da / (n - 1)
    noisy = data + jnp.sqrt(alpha) * noise_sd * jax.random.normal(key, predicted.shape)
    gain_t = jnp.linalg.solve(cdd + alpha * noise_sd ** 2 * jnp.eye(data.size), cxd.T)
    return ensemble + (noisy - predicted) @ gain_t


def main():
    key = jax.random.key(21)
    key, k_true, k_ens, k_noise = jax.random.split(key, 4)
    chol = jnp.linalg.cholesky(covariance(NX, 14.0, 0.7))
    truth = 0.4 + chol @ jax.random.normal(k_true, (NX,))
    ensemble = jax.random.normal(k_ens, (N_ENS, NX)) @ chol.T
    recharge = jnp.full(NX, 0.01)
    schedule = pumping_schedule()

    noise_sd = 0.02
    data = forecast(truth[None], recharge, schedule)[0]
    data = data + noise_sd * jax.random.normal(k_noise, data.shape)

    alphas = [9.33, 7.0, 4.0, 2.0]
    for it, alpha in enumerate(alphas):
        predicted = forecast(ensemble, recharge, schedule)
        misfit = jnp.sqrt(jnp.mean(((predicted - data) / noise_sd) ** 2))
        key, sub = jax.random.split(key)
        ensemble = mda_update(ensemble, predicted, data, noise_sd, alpha, sub)
        rmse = jnp.sqrt(jnp.mean((ensemble.mean(0) - truth) ** 2))
        print(f"iteration {it}: normalised misfit {misfit:7.2f}  field rmse {rmse:.3f}  "
              f"spread {ensemble.std(0).mean():.3f}")


if __name__ == "__main__":
    main()
