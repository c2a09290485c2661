"""PPO for continuous actions by the recipe that CleanRL documents, written from scratch here: Gymnasium's own normalising
wrappers, orthogonal tanh networks, a rate that falls to zero, clipped values, one permutation a pass.

`gymnasium_tasks.py` trains with it, so that the recipe is compared without another package to install.
"""

import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

RATE, DISCOUNT, TRACE, CLIP, VALUE_COEF, MAX_NORM, LIMIT = 3e-4, 0.99, 0.95, 0.2, 0.5, 0.5, 10.0


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


def network(inputs: int, hidden: tuple[int, ...], outputs: int, gain: float) -> nn.Sequential:
    parts: list[nn.Module] = []
    for width in hidden:
        parts += [layer(inputs, width), nn.Tanh()]
        inputs = width
    return nn.Sequential(*parts, layer(inputs, outputs, gain))


class Agent(nn.Module):
    def __init__(self, obs_dim: int, action_dim: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.mean, self.value = network(obs_dim, hidden, action_dim, 0.01), network(obs_dim, hidden, 1, 1.0)
        self.log_std = nn.Parameter(torch.zeros(1, action_dim))

    def distribution(self, obs: Tensor) -> torch.distributions.Normal:
        return torch.distributions.Normal(self.mean(obs), self.log_std.exp())


def one_env(task: str) -> gym.Env:
    """As the recipe wraps it: actions and observations clipped, both normalised by running statistics."""
    env = gym.wrappers.ClipAction(gym.make(task))
    env = gym.wrappers.NormalizeObservation(gym.wrappers.RecordEpisodeStatistics(env))
    env = gym.wrappers.TransformObservation(env, lambda obs: np.clip(obs, -LIMIT, LIMIT), env.observation_space)
    env = gym.wrappers.NormalizeReward(env, gamma=DISCOUNT)
    return gym.wrappers.TransformReward(env, lambda reward: float(np.clip(reward, -LIMIT, LIMIT)))


def statistics_of(env: gym.Env) -> Any:
    while not isinstance(env, gym.wrappers.NormalizeObservation):
        env = env.env  # pyright: ignore[reportAttributeAccessIssue]  # wrappers have it
    return env.obs_rms


def train(
    task: str,
    seed: int,
    steps: int,
    num_envs: int,
    horizon: int,
    passes: int,
    minibatches: int,
    hidden: tuple[int, ...],
) -> tuple[Agent, Any, float]:
    """The trained agent, the first environment's observation statistics, and CPU seconds."""
    torch.manual_seed(seed)
    mode = gym.vector.AutoresetMode.SAME_STEP
    envs = gym.vector.SyncVectorEnv([lambda: one_env(task)] * num_envs, autoreset_mode=mode)
    obs_dim, action_dim = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]  # pyright: ignore
    agent = Agent(obs_dim, action_dim, hidden)
    optimizer = torch.optim.Adam(agent.parameters(), RATE, eps=1e-5)
    rows, began = horizon * num_envs, time.process_time()
    obs = torch.zeros(horizon, num_envs, obs_dim)
    action = torch.zeros(horizon, num_envs, action_dim)
    log_prob, reward, start, value = (torch.zeros(horizon, num_envs) for _ in range(4))
    now = torch.as_tensor(envs.reset(seed=seed)[0], dtype=torch.float32)
    begins = torch.zeros(num_envs)
    iterations = steps // rows
    for iteration in range(iterations):
        optimizer.param_groups[0]["lr"] = RATE * (1 - iteration / iterations)
        for t in range(horizon):
            obs[t], start[t] = now, begins
            with torch.no_grad():
                policy = agent.distribution(now)
                action[t] = policy.sample()
                log_prob[t], value[t] = policy.log_prob(action[t]).sum(1), agent.value(now)[:, 0]
            seen, gained, terminated, truncated, _ = envs.step(action[t].numpy())
            now, reward[t] = torch.as_tensor(seen, dtype=torch.float32), torch.as_tensor(gained, dtype=torch.float32)
            begins = torch.as_tensor(terminated | truncated, dtype=torch.float32)
        advantage, trace = torch.zeros(horizon, num_envs), torch.zeros(num_envs)
        with torch.no_grad():
            after, ends = agent.value(now)[:, 0], begins
        for t in reversed(range(horizon)):
            delta = reward[t] + DISCOUNT * after * (1 - ends) - value[t]
            trace = delta + DISCOUNT * TRACE * (1 - ends) * trace
            advantage[t], after, ends = trace, value[t], start[t]
        target = advantage + value
        flat = [x.flatten(0, 1) for x in (obs, action, log_prob, advantage, target, value)]
        for _ in range(passes):
            for some in torch.randperm(rows).split(rows // minibatches):
                _step(agent, optimizer, *(x[some] for x in flat))
    return agent, statistics_of(envs.envs[0]), time.process_time() - began


def _step(
    agent: Agent,
    optimizer: torch.optim.Adam,
    obs: Tensor,
    action: Tensor,
    log_prob: Tensor,
    advantage: Tensor,
    target: Tensor,
    before: Tensor,
) -> None:
    policy = agent.distribution(obs)
    ratio = (policy.log_prob(action).sum(1) - log_prob).exp()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    actor = -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
    value = agent.value(obs)[:, 0]
    near = before + (value - before).clamp(-CLIP, CLIP)
    critic = 0.5 * torch.maximum((value - target).square(), (near - target).square()).mean()
    optimizer.zero_grad()
    (actor + VALUE_COEF * critic).backward()
    nn.utils.clip_grad_norm_(agent.parameters(), MAX_NORM)
    optimizer.step()


@torch.no_grad()
def returns(task: str, agent: Agent, statistics: Any, episodes: int, seed: int) -> list[float]:
    """Returns at the mean of the policy, observations normalised by what was seen in training."""
    env, found = gym.wrappers.ClipAction(gym.make(task)), []
    for number in range(episodes):
        obs, total, over = env.reset(seed=seed + number)[0], 0.0, False
        while not over:
            scaled = np.clip((obs - statistics.mean) / np.sqrt(statistics.var + 1e-8), -LIMIT, LIMIT)
            action = agent.mean(torch.as_tensor(scaled, dtype=torch.float32)[None])[0].numpy()
            obs, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        found.append(total)
    return found
