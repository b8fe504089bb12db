"""Message passing on molecules-like random graphs with equinox: regress a
shortest-path statistic (the mean eccentricity) from the structure alone.
"""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import shortest_path

NODES, EDGES, BATCH = 512, 1536, 24


class Layer(eqx.Module):
    message: eqx.nn.MLP
    update: eqx.nn.GRUCell

    def __init__(self, dim, key):
        a, b = jax.random.split(key)
        self.message = eqx.nn.MLP(2 * dim, dim, dim, 1, jax.nn.silu, key=a)
        self.update = eqx.nn.GRUCell(dim, dim, key=b)

    def __call__(self, h, src, dst, live):
        m = jax.vmap(self.message)(jnp.concatenate([h[src], h[dst]], -1)) * live[:, None]
        total = jax.ops.segment_sum(m, dst, NODES)
        return jax.vmap(self.update)(total, h)


class Net(eqx.Module):
    embed: eqx.nn.Linear
    layers: list
    head: eqx.nn.MLP
    dropout: eqx.nn.Dropout

    def __init__(self, dim, depth, key):
        k = jax.random.split(key, depth + 2)
        self.embed = eqx.nn.Linear(2, dim, key=k[0])
        self.layers = [Layer(dim, q) for q in k[1:-1]]
        self.head = eqx.nn.MLP(dim, 1, dim, 1, key=k[-1])
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, g, key):
        h = jax.vmap(self.embed)(g["x"])
        for layer in self.layers:
            h = h + layer(h, g["src"], g["dst"], g["live"])
        pooled = jax.ops.segment_sum(h * g["node_live"][:, None], g["graph"], BATCH)
        pooled = pooled / jax.ops.segment_sum(g["node_live"], g["graph"], BATCH)[:, None]
        pooled = self.dropout(pooled, key=key, inference=key is None)
        return jax.vmap(self.head)(pooled)[:, 0]


def random_graph(rng):
    n = int(rng.integers(10, 20))
    tree = [(i, int(rng.integers(max(0, i - 4), i))) for i in range(1, n)]
    extra = [tuple(rng.choice(n, 2, replace=False)) for _ in range(int(rng.integers(0, 5)))]
    e = np.array(tree + extra)
    e = np.concatenate([e, e[:, ::-1]])
    d = shortest_path(coo_matrix((np.ones(len(e)), e.T), (n, n)).tocsr(), unweighted=True)
    return n, e, d.max(1).mean()


def collate(graphs):
    """Pack graphs into one, padded to fixed numbers of nodes and edges."""
    x = np.zeros((NODES, 2), np.float32)
    src = np.full(EDGES, NODES - 1, np.int32)
    dst, owner = src.copy(), np.full(NODES, BATCH - 1, np.int32)
    live, node_live = np.zeros(EDGES, np.float32), np.zeros(NODES, np.float32)
    at = edge = 0
    for i, (n, e, _) in enumerate(graphs):
        src[edge:edge + len(e)], dst[edge:edge + len(e)] = e[:, 0] + at, e[:, 1] + at
        x[at:at + n, 0], x[at:at + n, 1] = np.bincount(e[:, 0], minlength=n) / 4, 1.0
        owner[at:at + n], node_live[at:at + n] = i, 1.0
        live[edge:edge + len(e)] = 1.0
        at, edge = at + n, edge + len(e)
    y = np.array([g[2] for g in graphs], np.float32)
    return dict(x=x, src=src, dst=dst, graph=owner, live=live, node_live=node_live, y=y)


def loss_fn(model, g, key):
    return optax.huber_loss(model(g, key), g["y"]).mean()


@eqx.filter_jit
def train_step(model, state, g, key, lr):
    value, grads = eqx.filter_value_and_grad(loss_fn)(model, g, key)
    updates, state = optax.scale_by_adam().update(grads, state)
    updates = jax.tree.map(lambda u: -lr * u, updates)
    return eqx.apply_updates(model, updates), state, value


@eqx.filter_jit
def evaluate(model, g):
    return jnp.abs(model(g, None) - g["y"]).mean()


def learning_rate(epoch, epochs, peak=3e-3, warm=3):
    if epoch < warm:
        return peak * (epoch + 1) / warm
    return peak * 0.5 * (1 + np.cos(np.pi * (epoch - warm) / (epochs - warm))).item()


def main(epochs=10):
    rng = np.random.default_rng(0)
    graphs = [random_graph(rng) for _ in range(24 * 30)]
    valid = [collate(graphs[i:i + BATCH]) for i in range(0, 24 * 5, BATCH)]
    train = graphs[24 * 5:]
    key = jax.random.key(7)
    model = Net(48, 3, key)
    state = optax.scale_by_adam().init(eqx.filter(model, eqx.is_array))
    for epoch in range(epochs):
        lr = learning_rate(epoch, epochs)
        order, losses = rng.permutation(len(train)), []
        for i in range(0, len(order), BATCH):
            batch = collate([train[j] for j in order[i:i + BATCH]])
            key, sub = jax.random.split(key)
            model, state, value = train_step(model, state, batch, sub, lr)
            losses.append(value)
        if epoch % 3 == 0:
            mae = np.mean([float(evaluate(model, g)) for g in valid])
            print(f"epoch {epoch + 1:2d}  lr {lr:.1e}  loss {np.mean(losses):.4f}  valid MAE {mae:.4f}")
    spread = np.std([g[2] for g in graphs])
    print(f"standard deviation of the target: {spread:.3f}")


if __name__ == "__main__":
    main()
