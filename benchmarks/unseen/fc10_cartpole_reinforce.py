"""REINFORCE with a value baseline on a vectorised cart-pole written in torch; episodes end at different times."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

ENVS, MAX_STEPS, GAMMA = 32, 120, 0.97


class CartPole:
    """The classic constants; a batch of carts that all push left or right."""

    def __init__(self, n, generator):
        self.n, self.g = n, generator
        self.state = None

    def reset(self):
        self.state = (torch.rand(self.n, 4, generator=self.g) - 0.5) * 0.1
        self.alive = torch.ones(self.n, dtype=torch.bool)
        return self.state

    def step(self, action):
        x, dx, th, dth = self.state.unbind(1)
        force = torch.where(action == 1, 10.0, -10.0)
        sin, cos = th.sin(), th.cos()
        temp = (force + 0.05 * dth**2 * sin) / 1.1
        ath = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        ax = temp - 0.05 * ath * cos / 1.1
        self.state = torch.stack([x + 0.02 * dx, dx + 0.02 * ax, th + 0.02 * dth, dth + 0.02 * ath], 1)
        reward = self.alive.float()
        fallen = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.2095)
        self.alive = self.alive & ~fallen
        return self.state, reward


class ActorCritic(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor = nn.Linear(width, 2)
        self.critic = nn.Linear(width, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return self.actor(h), self.critic(h).squeeze(-1)


@torch.compile(backend="aot_eager")
def returns_to_go(rewards, normaliser):
    """Discounted sums from each step to the end, scaled."""
    out = []
    running = torch.zeros_like(rewards[0])
    for r in reversed(rewards):
        running = r + GAMMA * running
        out.append(running / normaliser)
    return torch.stack(out[::-1])


def rollout(env, net):
    obs = env.reset()
    observations, actions, rewards = [], [], []
    for _ in range(MAX_STEPS):
        logits, _ = net(obs)
        action = Categorical(logits=logits).sample()
        observations.append(obs)
        actions.append(action)
        obs, reward = env.step(action)
        rewards.append(reward)
        if not env.alive.any():
            break
    return torch.stack(observations), torch.stack(actions), rewards


def loss_fn(logits, value, action, target, mask):
    logp = F.log_softmax(logits, -1)
    chosen = logp.gather(-1, action[..., None]).squeeze(-1)
    advantage = (target - value).detach()
    entropy = -(logp.exp() * logp).sum(-1)
    per_step = -chosen * advantage + 0.5 * (target - value).square() - 0.01 * entropy
    return (per_step * mask).sum() / mask.sum()


def greedy_length(env, net):
    obs = env.reset()
    total = torch.zeros(env.n)
    for _ in range(MAX_STEPS):
        obs, reward = env.step(net(obs)[0].argmax(-1))
        total += reward
    return total.mean().item()


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(2)
    env = CartPole(ENVS, generator)
    net = ActorCritic()
    optimizer = torch.optim.Adam(net.parameters(), lr=6e-3)
    normaliser = torch.tensor(1.0 / (1.0 - GAMMA))
    lengths = []
    for it in range(80):
        with torch.no_grad():
            observations, actions, rewards = rollout(env, net)
            target = returns_to_go(rewards, normaliser)
            mask = torch.stack(rewards)
        for _ in range(2):
            logits, value = net(observations)
            loss = loss_fn(logits, value, actions, target, mask)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        lengths.append(mask.sum(0).mean().item())
        if it % 10 == 9:
            print(f"iteration {it + 1:3d}  steps {len(rewards):3d}  mean length {sum(lengths[-10:]) / 10:.1f}  loss {loss.item():.3f}")
    with torch.no_grad():
        print(f"greedy policy: {greedy_length(env, net):.1f} of {MAX_STEPS} steps")


if __name__ == "__main__":
    main()
