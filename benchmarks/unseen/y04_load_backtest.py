"""Walk-forward backtest of a short-term electricity load model.

Each fold fits a small network on everything known so far and forecasts the following week hour by hour.
"""
import jax
import jax.numpy as jnp
import numpy as np
import optax

HOURS_PER_WEEK = 168
FIRST_TRAIN_WEEKS = 6
N_WEEKS = 13
FIT_STEPS = 120


def simulate_load(n_weeks, seed=0):
    rng = np.random.default_rng(seed)
    h = np.arange(n_weeks * HOURS_PER_WEEK)
    daily = np.sin(2 * np.pi * (h % 24 - 7) / 24) + 0.4 * np.sin(4 * np.pi * (h % 24) / 24)
    weekend = ((h // 24) % 7 >= 5).astype(float)
    temp = 10 + 8 * np.sin(2 * np.pi * h / (24 * 90)) + np.cumsum(rng.normal(0, 0.25, h.size)) * 0.2
    load = 60 + 12 * daily - 8 * weekend + 0.05 * (temp - 18) ** 2 + rng.normal(0, 1.2, h.size)
    return load.astype(np.float32), temp.astype(np.float32)


def build_features(load, temp):
    h = np.arange(load.size)
    cols = [np.sin(2 * np.pi * k * h / 24) for k in (1, 2, 3)]
    cols += [np.cos(2 * np.pi * k * h / 24) for k in (1, 2, 3)]
    cols += [(h // 24 % 7 == d).astype(float) for d in range(7)]
    lag_week = np.roll(load, HOURS_PER_WEEK)
    cols += [temp / 10, (temp / 10) ** 2, (lag_week - 60) / 15]
    x = np.stack(cols, 1).astype(np.float32)
    y = (load - 60) / 15
    return x[HOURS_PER_WEEK:], y[HOURS_PER_WEEK:]


class Forecaster:
    """A two-layer network that gives the 10 %, 50 % and 90 % quantile of the load."""

    quantiles = jnp.array([0.1, 0.5, 0.9])

    def __init__(self, n_features, hidden=24, lr=1e-2):
        self.n_features, self.hidden = n_features, hidden
        self.tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(lr, weight_decay=1e-4))
        self.loss_and_grad = jax.jit(jax.value_and_grad(self.pinball))
        self.predict = jax.jit(self.forward)

    def init(self, key):
        k1, k2, k3 = jax.random.split(key, 3)
        d, h = self.n_features, self.hidden
        return {
            "l1": {"w": jax.random.normal(k1, (d, h)) / d**0.5, "b": jnp.zeros(h)},
            "l2": {"w": jax.random.normal(k2, (h, h)) / h**0.5, "b": jnp.zeros(h)},
            "out": {"w": jax.random.normal(k3, (h, 3)) / h**0.5, "b": jnp.zeros(3)},
            "skip": {"w": jnp.zeros((d, 3))},
        }

    @staticmethod
    def forward(params, x):
        h = jnp.tanh(x @ params["l1"]["w"] + params["l1"]["b"])
        h = jnp.tanh(h @ params["l2"]["w"] + params["l2"]["b"])
        return h @ params["out"]["w"] + params["out"]["b"] + x @ params["skip"]["w"]

    def pinball(self, params, x, y):
        err = y[:, None] - self.forward(params, x)
        q = self.quantiles
        return jnp.mean(jnp.maximum(q * err, (q - 1) * err))

    def fit(self, params, x, y, steps):
        opt_state = self.tx.init(params)
        for _ in range(steps):
            loss, grads = self.loss_and_grad(params, x, y)
            updates, opt_state = self.tx.update(grads, opt_state, params)
            params = optax.apply_updates(params, updates)
        return params, loss


def coverage(pred, y):
    return float(np.mean((y >= pred[:, 0]) & (y <= pred[:, 2])))


def naive_mape(load_scaled, start):
    week = load_scaled[start:start + HOURS_PER_WEEK]
    before = load_scaled[start - HOURS_PER_WEEK:start]
    return float(np.mean(np.abs(week - before) / np.abs(week * 15 + 60)) * 15)


def main():
    load, temp = simulate_load(N_WEEKS + 1)
    x, y = build_features(load, temp)
    x, y = jnp.asarray(x), jnp.asarray(y)
    y_host = np.asarray(y)
    model = Forecaster(x.shape[1])
    params = model.init(jax.random.key(4))

    report = []
    for week in range(FIRST_TRAIN_WEEKS, N_WEEKS):
        now = week * HOURS_PER_WEEK
        params, loss = model.fit(params, x[:now], y[:now], FIT_STEPS)
        pred = np.asarray(model.predict(params, x[now:now + HOURS_PER_WEEK]))
        truth = y_host[now:now + HOURS_PER_WEEK]
        mape = float(np.mean(np.abs(pred[:, 1] - truth) * 15 / (truth * 15 + 60)))
        report.append((mape, naive_mape(y_host, now), coverage(pred, truth)))
        print(f"week {week:2d}  fit {float(loss):.4f}  mape {100 * mape:.2f} %  "
              f"naive {100 * report[-1][1]:.2f} %  80 % band covers {100 * report[-1][2]:.0f} %")

    mean = np.mean(report, axis=0)
    print(f"overall: mape {100 * mean[0]:.2f} % against naive {100 * mean[1]:.2f} %, coverage {100 * mean[2]:.0f} %")


if __name__ == "__main__":
    main()
