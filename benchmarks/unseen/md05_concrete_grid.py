"""Concrete compressive strength: grid search of a small MLP regressor with 4-fold cross-validation.

The regressor has the fit / predict interface of scikit-learn, so that the search loop below can
also be used with the gradient boosting baselines.
"""
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

FOLDS = 4
GRID = {"learning_rate": [1e-3, 3e-3], "weight_decay": [0.0, 1e-1]}


def concrete(n=1024, seed=0):
    """Cement, slag, ash, water, superplasticizer, coarse, fine, age -> MPa."""
    rng = np.random.default_rng(seed)
    low = np.array([100, 0, 0, 120, 0, 800, 590, 1])
    high = np.array([540, 360, 200, 250, 32, 1150, 990, 365])
    x = rng.uniform(low, high, (n, 8))
    binder = x[:, 0] + 0.7 * x[:, 1] + 0.4 * x[:, 2]
    strength = (95 * np.exp(-1.6 * x[:, 3] / binder) * (0.35 + 0.12 * np.log1p(x[:, 7]))
                + 0.3 * x[:, 4] + 2 * rng.normal(size=n))
    return x.astype(np.float32), strength.astype(np.float32)


class MLP(nn.Module):
    widths: tuple = (64, 64, 32)

    @nn.compact
    def __call__(self, x):
        for width in self.widths:
            x = nn.swish(nn.LayerNorm()(nn.Dense(width)(x)))
        return nn.Dense(1)(x)[..., 0]


class StandardScaler:
    def fit(self, x):
        self.mean, self.std = x.mean(0), x.std(0) + 1e-6
        return self

    def transform(self, x):
        return (x - self.mean) / self.std

    def inverse(self, x):
        return x * self.std + self.mean


class NeuralRegressor:
    """fit(X, y), predict(X)."""

    def __init__(self, learning_rate=1e-3, weight_decay=0.0, epochs=25, batch=64, seed=0):
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.epochs = epochs
        self.batch = batch
        self.seed = seed
        self.net = MLP()
        self.tx = optax.adamw(learning_rate, weight_decay=weight_decay)
        self._epoch = jax.jit(self._run_epoch)
        self._forward = jax.jit(self.net.apply)

    def _loss(self, params, x, y):
        return optax.huber_loss(self.net.apply(params, x), y).mean()

    def _run_epoch(self, params, opt_state, x, y, key):
        order = jax.random.permutation(key, x.shape[0])
        order = order[: len(order) // self.batch * self.batch].reshape(-1, self.batch)

        def body(carry, idx):
            params, opt_state = carry
            loss, grads = jax.value_and_grad(self._loss)(params, x[idx], y[idx])
            updates, opt_state = self.tx.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), loss

        (params, opt_state), losses = jax.lax.scan(body, (params, opt_state), order)
        return params, opt_state, losses.mean()

    def fit(self, x, y):
        self.x_scale = StandardScaler().fit(x)
        self.y_scale = StandardScaler().fit(y)
        x = jnp.asarray(self.x_scale.transform(x))
        y = jnp.asarray(self.y_scale.transform(y))
        key = jax.random.key(self.seed)
        params = self.net.init(key, x[:1])
        opt_state = self.tx.init(params)
        for epoch_key in jax.random.split(key, self.epochs):
            params, opt_state, _ = self._epoch(params, opt_state, x, y, epoch_key)
        self.params = params
        return self

    def predict(self, x):
        z = self._forward(self.params, jnp.asarray(self.x_scale.transform(x)))
        return self.y_scale.inverse(np.asarray(z))


def kfold(n, folds, seed=0):
    order = np.random.default_rng(seed).permutation(n)
    parts = np.array_split(order, folds)
    for k in range(folds):
        yield np.concatenate(parts[:k] + parts[k + 1:]), parts[k]


def cross_validate(make, x, y):
    rmse = []
    for train, valid in kfold(len(x), FOLDS):
        model = make().fit(x[train], y[train])
        rmse.append(np.sqrt(np.mean((model.predict(x[valid]) - y[valid]) ** 2)))
    return np.array(rmse)


def main():
    x, y = concrete()
    best = None
    for values in itertools.product(*GRID.values()):
        setting = dict(zip(GRID, values))
        scores = cross_validate(lambda: NeuralRegressor(**setting), x, y)
        print(f"{setting} RMSE {scores.mean():.2f} +- {scores.std():.2f} MPa", flush=True)
        if best is None or scores.mean() < best[0]:
            best = (scores.mean(), setting)
    print("best:", best[1], f"{best[0]:.2f} MPa, spread of y {y.std():.2f}")


if __name__ == "__main__":
    main()
