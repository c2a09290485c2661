"""A policy in NumPy, without torch or Echelon: this file and the .npz beside it are all that is needed.

policy = NumpyPolicy("policy.npz")
action = policy(observation)      # [D] or [N, D], in raw units; the action is in the environment's units
policy.reset()                    # where an episode begins, if the policy has a memory
"""

import json

import numpy as np


class NumpyPolicy:
    """The mean of a policy's Gaussian, within the bounds of its environment's actions."""

    def __init__(self, path):
        with np.load(path) as file:
            self.weights = {name: file[name] for name in file.files}
        for name in [name for name in self.weights if name.endswith("_scale")]:  # rows of whole numbers, to save space
            whole = name.removesuffix("_scale")
            self.weights[whole] = self.weights[whole] * self.weights.pop(name)
        self.metadata = json.loads(str(self.weights.pop("metadata")))
        self.activate = _ACTIVATIONS[self.metadata.get("activation", "elu")]
        self.state = None

    def reset(self):
        """Forget what was seen."""
        self.state = None

    def __call__(self, obs):
        """Actions for observations `[D]`, or `[N, D]` of several environments."""
        obs = np.asarray(obs, dtype=np.float32)
        w = self.weights
        x = np.clip((np.atleast_2d(obs) - w["obs_mean"]) / w["obs_std"], -w["obs_clip"], w["obs_clip"])
        x = x @ w["first_weight"].T + w["first_bias"]
        x = self._remember(x) if "recur_weight" in w else self.activate(self._normed(x, "first_norm"))
        layer = 0
        while f"layer_{layer}_weight" in w:
            x = x @ w[f"layer_{layer}_weight"].T + w[f"layer_{layer}_bias"]
            x = self.activate(self._normed(x, f"layer_{layer}_norm"))
            layer += 1
        x = x @ w["mean_weight"].T + w["mean_bias"]
        x = np.tanh(x) if self.metadata.get("squashed") else x
        free = np.isinf(w["action_low"]) | np.isinf(w["action_high"])
        low, high = np.where(free, -1, w["action_low"]), np.where(free, 1, w["action_high"])
        action = np.where(free, x, (low + high) / 2 + (high - low) / 2 * np.clip(x, -1, 1)).astype(np.float32)
        return action[0] if obs.ndim == 1 else action

    def _remember(self, gates):
        """One step of the LSTM, and the normalisation of what it puts out."""
        w = self.weights
        if self.state is None or len(self.state) != len(gates):
            self.state = np.zeros((len(gates), 2 * w["recur_weight"].shape[1]), np.float32)
        hidden, cell = np.split(self.state, 2, axis=1)
        enter, forget, candidate, leave = np.split(gates + hidden @ w["recur_weight"].T, 4, axis=1)
        cell = _sigmoid(forget) * cell + _sigmoid(enter) * np.tanh(candidate)
        hidden = _sigmoid(leave) * np.tanh(cell)
        self.state = np.concatenate((hidden, cell), axis=1).astype(np.float32)
        return self._normed(hidden, "norm")

    def _normed(self, x, name):
        """Layer normalisation, if the file has one of that name."""
        if f"{name}_weight" not in self.weights:
            return x
        centred = x - x.mean(1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
        return scaled * self.weights[f"{name}_weight"] + self.weights[f"{name}_bias"]


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


_ACTIVATIONS = {
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
}
