"""Physics-informed network for the viscous Burgers equation with a viscosity
continuation: start smooth, sharpen towards the target viscosity."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

TARGET_NU = 0.01 / np.pi
N_COLLOC = 512
N_EDGE = 96


class FourierNet(eqx.Module):
    freqs: jax.Array
    mlp: eqx.nn.MLP

    def __init__(self, key, n_freq=8, width=40, depth=4):
        kf, km = jax.random.split(key)
        self.freqs = jax.random.normal(kf, (n_freq, 2))
        self.mlp = eqx.nn.MLP(2 * n_freq, 1, width, depth, jnp.tanh, key=km)

    def __call__(self, t, x):
        z = self.freqs @ jnp.stack([t, x])
        return self.mlp(jnp.concatenate([jnp.sin(z), jnp.cos(z)]))[0]


class Burgers(eqx.Module):
    """Problem definition: everything that the residual needs."""
    nu: float
    edge_weight: float = 10.0
    initial_weight: float = 20.0

    def residual(self, net, t, x):
        u = net(t, x)
        u_t = jax.grad(net, 0)(t, x)
        u_x = jax.grad(net, 1)(t, x)
        u_xx = jax.grad(jax.grad(net, 1), 1)(t, x)
        return u_t + u * u_x - self.nu * u_xx

    def loss(self, net, batch):
        tc, xc, te, xe, xi = batch
        res = jax.vmap(lambda t, x: self.residual(net, t, x))(tc, xc)
        edge = jax.vmap(net)(te, xe)
        init = jax.vmap(lambda x: net(jnp.zeros(()), x) + jnp.sin(jnp.pi * x))(xi)
        return (jnp.mean(res ** 2) + self.edge_weight * jnp.mean(edge ** 2)
                + self.initial_weight * jnp.mean(init ** 2))


def sample(key):
    a, b, c, d, e = jax.random.split(key, 5)
    tc = jax.random.uniform(a, (N_COLLOC,))
    xc = jax.random.uniform(b, (N_COLLOC,), minval=-1.0, maxval=1.0)
    te = jax.random.uniform(c, (N_EDGE,))
    xe = jnp.where(jax.random.bernoulli(d, 0.5, (N_EDGE,)), 1.0, -1.0)
    xi = jax.random.uniform(e, (N_EDGE,), minval=-1.0, maxval=1.0)
    return tc, xc, te, xe, xi


def viscosity(stage, n_stages, start=0.08):
    """Geometric continuation from `start` down to the target."""
    f = stage / (n_stages - 1)
    return float(start ** (1 - f) * TARGET_NU ** f)


def make_trainer(optim):
    @eqx.filter_jit
    def advance(net, opt_state, problem, key):
        params, static = eqx.partition(net, eqx.is_inexact_array)

        def one(carry, k):
            p, s = carry
            value, grads = jax.value_and_grad(
                lambda p: problem.loss(eqx.combine(p, static), sample(k)))(p)
            updates, s = optim.update(grads, s, p)
            return (optax.apply_updates(p, updates), s), value

        (params, opt_state), values = jax.lax.scan(one, (params, opt_state), jax.random.split(key, 25))
        return eqx.combine(params, static), opt_state, values

    return advance


def main():
    key = jax.random.key(5)
    key, k_net = jax.random.split(key)
    net = FourierNet(k_net)
    n_stages = 8
    optim = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(2e-3, 25 * n_stages)))
    opt_state = optim.init(eqx.filter(net, eqx.is_inexact_array))
    advance = make_trainer(optim)

    for stage in range(n_stages):
        problem = Burgers(nu=viscosity(stage, n_stages))
        key, sub = jax.random.split(key)
        net, opt_state, values = advance(net, opt_state, problem, sub)
        if stage % 4 == 3:
            print(f"stage {stage:2d}  nu {problem.nu:.5f}  loss {float(values.mean()):.4f}")

    x = jnp.linspace(-1, 1, 9)
    print("u(0.5, x):", np.round(np.asarray(jax.vmap(lambda x: net(jnp.asarray(0.5), x))(x)), 3))


if __name__ == "__main__":
    main()
