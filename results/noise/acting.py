"""What noise costs a policy that grasps: the trained AllegroKukaRegrasping with noise on the arm's or the fingers' actions.

    PYTHONPATH=benchmarks python results/noise/acting.py --json results/noise/acting.jsonl

White noise of deviation sigma is added to its mean actions, as in training; 0 is the policy as its card scores it.
"""

from dataclasses import replace
from pathlib import Path

import torch
from command import Row, append, command, options
from holding import ACTIONS
from torch import Tensor

from echelon.evaluation.evaluate import first_episodes
from echelon.export.files import open_exported
from echelon.rollout.acting import Actor, Decision

POLICY = Path(__file__).parents[1] / "policies" / "AllegroKukaRegrasping" / "policy.npz"
SIGMAS = (0.25, 0.4, 0.7, 1.0)
CASES = [("arm", 0.0), *((name, sigma) for name in ("arm", "fingers") for sigma in SIGMAS)]


class Loud:
    """An actor whose actions are its means and noise."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor

    def decide(self, obs: dict[str, Tensor], state: Tensor, noise: Tensor | None) -> Decision:
        decision = self.actor.decide(obs, state, None)
        return replace(decision, action=decision.action + noise)

    def __getattr__(self, name: str) -> object:
        return getattr(self.actor, name)


def score(episodes: int, seed: int, where: slice, sigma: float) -> Row:
    """Means over one episode of each environment."""
    trained, generator = open_exported(POLICY), torch.Generator().manual_seed(seed)
    env = trained.make_env(episodes, torch.device("cpu"), seed)

    def noise() -> Tensor:
        drawn = torch.zeros(episodes, env.action_dim)
        drawn[:, where] = sigma * torch.randn(drawn[:, where].shape, generator=generator)
        return drawn

    found = first_episodes(env, Loud(trained.actor(0, episodes)), noise)
    return {name: round(x.double().mean().item(), 4) for name, x in found.items()}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    for name, sigma in CASES:
        row = {"noise_on": name, "sigma": sigma, "episodes": given.episodes, "seed": given.seed}
        row |= score(given.episodes, given.seed, ACTIONS[name], sigma)
        print(row, flush=True)
        append(given.json, [row])


if __name__ == "__main__":
    command(main)
