"""A task that is seen, not measured: a dot is led to another one in a picture of 16 by 16 pixels. No simulator needed.

    python examples/images.py

It trains for a minute on a CPU and prints the score before and after. The environment gives one group, `image`, as
uint8 `[N, 3, 16, 16]`; convolutions before the network's layers (`--model.channels`) come with it by themselves.
"""

import time
from dataclasses import replace

import torch

from echelon import ModelConfig, Step, TrainConfig, UpdateConfig, evaluate, train

PIXELS, STEPS, REACH = 16, 30, 0.15


class Dots:
    """A red dot and a green one. An action moves the red one by up to `REACH`; the reward is minus their distance."""

    action_dim, episode_length, obs_spec = 2, STEPS, {"image": (3, PIXELS, PIXELS)}

    def __init__(self, num_envs: int, device: torch.device, seed: int) -> None:
        self.num_envs, self.device = num_envs, device
        self.generator = torch.Generator(device).manual_seed(seed)
        self.pixel = torch.linspace(-1, 1, PIXELS, device=device)
        self.clock = 0

    def reset(self) -> dict[str, torch.Tensor]:
        """Both dots at random."""
        self.clock = 0
        places = torch.rand(2, self.num_envs, 2, generator=self.generator, device=self.device)
        self.red, self.green = 1.8 * places - 0.9
        return self.observe()

    def observe(self) -> dict[str, torch.Tensor]:
        """Each dot as a soft spot in a channel of its own; the third is empty."""
        image = torch.zeros(self.num_envs, 3, PIXELS, PIXELS, device=self.device)
        for channel, place in enumerate((self.red, self.green)):
            x, y = ((self.pixel - place[:, axis, None]).square() for axis in (0, 1))
            image[:, channel] = torch.exp(-30 * (y[:, :, None] + x[:, None, :]))
        return {"image": (255 * image).to(torch.uint8)}

    def step(self, action: torch.Tensor) -> Step:
        """All episodes end together."""
        self.clock += 1
        self.red = (self.red + REACH * action).clamp(-1, 1)
        reward, last = -(self.red - self.green).norm(dim=1), self.observe()
        over = torch.full((self.num_envs,), self.clock == STEPS, device=self.device)
        obs = self.reset() if self.clock == STEPS else last
        return Step(obs, reward, torch.zeros_like(over), over, final_obs=last)

    def state_dict(self) -> dict[str, object]:
        return {"clock": self.clock, "red": self.red, "green": self.green, "generator": self.generator.get_state()}

    def load_state_dict(self, state) -> None:
        self.clock = state["clock"]
        self.red, self.green = (state[dot].to(self.device) for dot in ("red", "green"))  # a file's are on the CPU
        self.generator.set_state(state["generator"])


SETTINGS = TrainConfig(
    task="Dots",
    algo="ppo",
    num_envs=64,
    env_steps=250_000,
    device="cpu",
    model=ModelConfig(hidden=(64,), channels=(8, 16), initial_sigma=0.5),
    update=UpdateConfig(horizon=32, minibatches=8, mini_epochs=4, discount=0.95, learning_rate=1e-3),
)


def main() -> None:
    for steps in (64 * 32, SETTINGS.env_steps):
        began = time.perf_counter()
        folder = train(replace(SETTINGS, env_steps=steps, out=f"runs/dots-{steps}"), make_env=Dots)
        score = evaluate(folder, make_env=Dots).scores[0].return_mean
        print(f"after {steps:,} steps and {time.perf_counter() - began:.0f} s: a return of {score:.1f}")


if __name__ == "__main__":
    main()
