"""Policy-gradient dispatching: which ambulance should answer the next emergency call?"""
import collections
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax

N_UNITS, GRID = 5, 10.0
MAX_CALLS = 40
N_UPDATES, SHIFTS_PER_UPDATE = 16, 4


@dataclasses.dataclass
class Transition:
    obs: np.ndarray
    action: int
    reward: float


class CityEnv:
    """Calls arrive at random; the shift ends when the work that is waiting grows beyond a limit."""

    def __init__(self, rng, limit=22.0):
        self.rng, self.limit = rng, limit

    def reset(self):
        self.where = self.rng.uniform(0, GRID, (N_UNITS, 2))
        self.free_at = np.zeros(N_UNITS)
        self.clock, self.calls = 0.0, 0
        return self._next_call()

    def _next_call(self):
        self.clock += self.rng.exponential(2.7)
        self.call = np.clip(self.rng.normal(5, 2.5, 2), 0, GRID)
        self.severity = self.rng.uniform(0.2, 1.0)
        return self._observe()

    def _observe(self):
        dist = np.linalg.norm(self.where - self.call, axis=1)
        wait = np.maximum(self.free_at - self.clock, 0)
        return np.concatenate([dist / GRID, wait / 10, self.where.ravel() / GRID - 0.5,
                               self.call / GRID - 0.5, [self.severity]]).astype(np.float32)

    def step(self, unit):
        dist = np.linalg.norm(self.where[unit] - self.call)
        start = max(self.clock, self.free_at[unit])
        response = start - self.clock + dist
        self.free_at[unit] = start + dist + self.rng.gamma(4.0, 1.8)
        self.where[unit] = self.call
        self.calls += 1
        backlog = np.maximum(self.free_at - self.clock, 0).sum()
        done = backlog > self.limit * 2 or self.calls >= MAX_CALLS
        reward = -self.severity * response / 10 - (5.0 if done and self.calls < MAX_CALLS else 0.0)
        return self._next_call(), reward, done


def init_policy(key, sizes):
    layers = []
    for n_in, n_out, k in zip(sizes[:-1], sizes[1:], jax.random.split(key, len(sizes) - 1)):
        layers.append((jax.random.normal(k, (n_in, n_out)) * n_in**-0.5, jnp.zeros(n_out)))
    return layers


def policy_logits(params, obs):
    h = obs
    for w, b in params[:-1]:
        h = jnp.tanh(h @ w + b)
    w, b = params[-1]
    return h @ w + b - 4.0 * obs[..., :N_UNITS]


class ReinforceAgent:
    def __init__(self, obs_size, seed, lr=3e-3, gamma=0.97, entropy=0.01):
        self.key, init_key = jax.random.split(jax.random.key(seed))
        self.params = init_policy(init_key, (obs_size, 32, 32, N_UNITS))
        self.tx = optax.adam(lr)
        self.opt_state = self.tx.init(self.params)
        self.gamma, self.entropy = gamma, entropy
        self.baseline = np.zeros(MAX_CALLS, np.float32)
        self._update = jax.jit(self._policy_gradient)

    def act(self, obs):
        self.key, sub = jax.random.split(self.key)
        logits = policy_logits(self.params, obs)
        return int(jax.random.categorical(sub, logits))

    def _policy_gradient(self, params, opt_state, obs, actions, advantages):
        def loss(p):
            logp = jax.nn.log_softmax(policy_logits(p, obs))
            chosen = jnp.take_along_axis(logp, actions[:, None], 1)[:, 0]
            ent = -jnp.sum(jnp.exp(logp) * logp, -1)
            return -jnp.mean(chosen * advantages + self.entropy * ent)

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt_state = self.tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, value

    def _advantages(self, episode):
        rewards = np.array([t.reward for t in episode], np.float32)
        returns = np.zeros_like(rewards)
        running = 0.0
        for i in reversed(range(len(rewards))):
            running = rewards[i] + self.gamma * running
            returns[i] = running
        advantages = returns - self.baseline[:len(returns)]
        self.baseline[:len(returns)] += 0.1 * advantages
        return advantages

    def learn(self, episodes):
        advantages = np.concatenate([self._advantages(e) for e in episodes])
        obs = np.stack([t.obs for e in episodes for t in e])
        actions = np.array([t.action for e in episodes for t in e], np.int32)
        self.params, self.opt_state, loss = self._update(self.params, self.opt_state, obs, actions, advantages)
        return loss


def play(env, agent):
    episode, obs, done = [], env.reset(), False
    while not done:
        action = agent.act(obs)
        nxt, reward, done = env.step(action)
        episode.append(Transition(obs, action, reward))
        obs = nxt
    return episode


def main():
    env = CityEnv(np.random.default_rng(8))
    agent = ReinforceAgent(env.reset().size, seed=0)
    recent = collections.deque(maxlen=20)
    lengths = collections.deque(maxlen=20)
    for n in range(1, N_UPDATES + 1):
        episodes = [play(env, agent) for _ in range(SHIFTS_PER_UPDATE)]
        loss = agent.learn(episodes)
        for episode in episodes:
            recent.append(np.mean([t.reward for t in episode]))
            lengths.append(len(episode))
        if n % 4 == 0:
            print(f"update {n:4d}  reward per call {np.mean(recent):+.3f}  calls served {np.mean(lengths):5.1f}  "
                  f"loss {float(loss):+.3f}")


if __name__ == "__main__":
    main()
