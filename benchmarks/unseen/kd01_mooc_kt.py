"""Deep knowledge tracing on synthetic MOOC logs: five bagged GRU students, averaged at the end.

Each bag resamples the learners, trains its own network with flax.linen + optax and votes on
the probability that the next exercise is answered correctly.
"""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state

N_SKILL = 40
T = 48
N_LEARNERS = 512
N_BAGS = 9
EPOCHS = 2
BATCH = 64


def simulate_learners(n, seed):
    rng = np.random.default_rng(seed)
    ability = rng.normal(size=(n, 1))
    difficulty = rng.normal(size=N_SKILL)
    skills = rng.integers(0, N_SKILL, size=(n, T))
    practice = np.arange(T)[None] * 0.03
    logit = ability - difficulty[skills] + practice
    correct = (rng.random((n, T)) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return skills.astype(np.int32), correct


class KnowledgeTracer(nn.Module):
    hidden: int = 64

    @nn.compact
    def __call__(self, skills, correct):
        inter = skills + N_SKILL * correct.astype(jnp.int32)
        x = nn.Embed(2 * N_SKILL, self.hidden)(inter)
        x = nn.RNN(nn.GRUCell(self.hidden))(x)
        x = nn.LayerNorm()(x)
        x = x + nn.RNN(nn.GRUCell(self.hidden))(x)
        x = nn.RNN(nn.OptimizedLSTMCell(self.hidden))(nn.LayerNorm()(x))
        q = nn.Embed(N_SKILL, self.hidden)(jnp.roll(skills, -1, axis=1))
        return (x * q).sum(-1)[:, :-1]


def cosine_adamw(total):
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-3, total // 10 + 1, total)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-3))


@jax.jit
def train_step(state, skills, correct):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, skills, correct)
        return optax.sigmoid_binary_cross_entropy(logits, correct[:, 1:]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


class Bagger:
    def __init__(self, model, n_bags):
        self.model = model
        self.n_bags = n_bags
        self.predict = jax.jit(lambda p, s, c: nn.sigmoid(model.apply({"params": p}, s, c)))
        self.members = []

    def new_student(self, key, total):
        dummy = jnp.zeros((1, T), jnp.int32)
        params = jax.jit(self.model.init)(key, dummy, dummy)["params"]
        return train_state.TrainState.create(
            apply_fn=self.model.apply,
            params=params,
            tx=cosine_adamw(total),
        )

    def fit(self, skills, correct, seed=0):
        rng = np.random.default_rng(seed)
        steps = EPOCHS * (len(skills) // BATCH)
        for bag in range(self.n_bags):
            state = self.new_student(jax.random.key(bag), steps)
            rows = rng.integers(0, len(skills), size=len(skills))
            for epoch in range(EPOCHS):
                rng.shuffle(rows)
                losses = []
                for i in range(0, len(rows), BATCH):
                    idx = rows[i:i + BATCH]
                    state, loss = train_step(state, skills[idx], correct[idx])
                    losses.append(loss)
            print(f"bag {bag}: last epoch loss {float(jnp.stack(losses).mean()):.4f}")
            self.members.append(state.params)

    def predict_mean(self, skills, correct):
        votes = [self.predict(p, skills, correct) for p in self.members]
        return np.asarray(sum(votes) / len(votes))


def auc(score, label):
    order = np.argsort(score)
    ranks = np.empty(len(score))
    ranks[order] = np.arange(1, len(score) + 1)
    pos = label.sum()
    return (ranks[label > 0].sum() - pos * (pos + 1) / 2) / (pos * (len(label) - pos))


def main():
    skills, correct = simulate_learners(N_LEARNERS, 0)
    ensemble = Bagger(KnowledgeTracer(), N_BAGS)
    ensemble.fit(skills, correct)
    s_val, c_val = simulate_learners(256, 0)
    p = ensemble.predict_mean(s_val, c_val)
    print(f"ensemble AUC {auc(p.ravel(), c_val[:, 1:].ravel()):.3f}")


if __name__ == "__main__":
    main()
