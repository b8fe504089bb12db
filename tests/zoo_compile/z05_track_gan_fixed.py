"""GAN for vertical track-irregularity profiles (railway geometry cars), 64 samples each."""
import torch
import torch.nn as nn
import torch.nn.functional as F

LENGTH, LATENT = 64, 12


def measured_profiles(count):
    position = torch.arange(LENGTH) / LENGTH
    joints = torch.randint(3, 6, (count, 1))
    depth = 0.5 + torch.rand(count, 1)
    drift = torch.cumsum(0.12 * torch.randn(count, LENGTH), 1)
    return depth * torch.cos(2 * torch.pi * joints * position).abs().neg() + drift


class Generator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.seed = nn.Linear(LATENT, width * 8)
        self.up1 = nn.ConvTranspose1d(width, width, 4, 2, 1)
        self.up2 = nn.ConvTranspose1d(width, width, 4, 2, 1)
        self.up3 = nn.ConvTranspose1d(width, 1, 4, 2, 1)

    def forward(self, z):
        h = self.seed(z).view(z.shape[0], -1, 8)
        h = F.leaky_relu(self.up1(h), 0.2)
        h = F.leaky_relu(self.up2(h), 0.2)
        return self.up3(h).squeeze(1)


class Critic(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        sn = nn.utils.spectral_norm
        self.layers = nn.Sequential(
            sn(nn.Conv1d(1, width, 5, 2, 2)), nn.LeakyReLU(0.2),
            sn(nn.Conv1d(width, width, 5, 2, 2)), nn.LeakyReLU(0.2),
            nn.Flatten(), nn.Linear(width * LENGTH // 4, 1))

    def forward(self, profile):
        return self.layers(profile[:, None]).squeeze(1)


def freeze(module, frozen):
    for parameter in module.parameters():
        parameter.requires_grad_(not frozen)


class FakeHistory:
    """Earlier forgeries, shown to the critic again so that it does not forget them (Shrivastava et al.)."""

    def __init__(self, rows):
        self.half, self.kept = rows // 2, None

    def mix(self, fresh):
        if self.kept is None:
            self.kept = fresh[:self.half].clone()
        shown = torch.cat([fresh[self.half:], self.kept])
        self.kept[torch.randint(self.half, (2,))] = fresh[:2]
        return shown


class Duel:
    def __init__(self, batch=32):
        self.batch = batch
        self.history = FakeHistory(batch)
        self.generator, self.critic = Generator(), Critic()
        self.draw = torch.compile(self.generator)
        self.judge = torch.compile(self.critic)
        self.opt_g = torch.optim.Adam(self.generator.parameters(), 2e-4, betas=(0.5, 0.9))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), 4e-4, betas=(0.5, 0.9))

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.history.mix(self.draw(torch.randn(self.batch, LATENT)))
        loss = F.relu(1 - self.judge(real)).mean() + F.relu(1 + self.judge(fake)).mean()
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        return loss.detach()

    def generator_step(self):
        freeze(self.critic, True)
        loss = -self.judge(self.draw(torch.randn(self.batch, LATENT))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        freeze(self.critic, False)
        return loss.detach()

    @torch.no_grad()
    def roughness(self, rows):
        profiles = self.draw(torch.randn(rows, LATENT))
        return profiles.diff(dim=1).std().item()


def main():
    torch.manual_seed(3)
    pool = measured_profiles(2048)
    duel = Duel()
    target = pool.diff(dim=1).std().item()
    for step in range(1, 401):
        real = pool[torch.randint(len(pool), (duel.batch,))]
        critic_loss = duel.critic_step(real)
        if step % 2 == 0:
            generator_loss = duel.generator_step()
        if step % 100 == 0:
            print(f"{step:4d}  critic {critic_loss:.3f}  generator {generator_loss:.3f}  "
                  f"roughness {duel.roughness(duel.batch):.3f} / {target:.3f}")


if __name__ == "__main__":
    main()
