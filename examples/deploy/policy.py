"""An exported policy and what its file says about the robot. Needs NumPy, and onnxruntime for an .onnx file.

The .npz needs numpy_policy.py beside it, which `echelon export` writes there.
"""

import json
import sys
from pathlib import Path

import numpy as np


class Policy:
    """From quantities of the robot to controls of its actuators, at `rate` Hz. Call `reset` where an episode begins."""

    def __init__(self, file):
        file = Path(file)
        needed = [file, *([file.with_name("numpy_policy.py")] if file.suffix == ".npz" else [])]
        for missing in (path for path in needed if not path.is_file()):
            sys.exit(f"there is no {missing}; `echelon export RUN --out {file}` writes it")
        if file.suffix == ".npz":
            sys.path.insert(0, str(file.parent.resolve()))
            from numpy_policy import NumpyPolicy

            self.network = NumpyPolicy(file)
        else:
            self.network = OnnxPolicy(file)
        self.facts = self.network.metadata
        if not self.facts.get("observation") or self.facts["actuators"][0]["scale"] is None:
            sys.exit(f"{file} does not say what the policy observes, or what its actions do; see docs/export.md")
        self.rate, self.layout = self.facts["control_rate"], self.facts["observation"]
        self.actuators = [actuator["name"] for actuator in self.facts["actuators"]]
        self.offset, self.scale = (
            np.array([actuator[name] for actuator in self.facts["actuators"]], np.float32)
            for name in ("offset", "scale")
        )
        self.reset()

    def reset(self):
        """Forget the previous action, and what an LSTM remembers."""
        self.network.reset()
        self.action = np.zeros(len(self.scale), np.float32)

    def observe(self, read):
        """The observation, where `read(quantity, names)` returns the robot's quantities in the units of the layout."""
        parts = []
        for part in self.layout:
            if part["quantity"] == "previous action":
                found = [self.action[self.actuators.index(name)] for name in part["of"]]
            else:
                found = read(part["quantity"], part["of"])
            x = np.float32(part["scale"]) * (np.float32(found) - np.float32(part["offset"]))
            parts.append(x if part["clip"] is None else np.clip(x, -part["clip"], part["clip"]))
        return np.concatenate(parts)

    def control(self, read):
        """Controls in the order of `actuators`, from the robot's quantities."""
        self.action = self.network(self.observe(read))
        return self.offset + self.scale * self.action


class OnnxPolicy:
    """An .onnx file, by ONNX Runtime."""

    def __init__(self, file):
        import onnxruntime

        self.session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        self.metadata = {}
        for name, value in self.session.get_modelmeta().custom_metadata_map.items():
            try:
                self.metadata[name] = json.loads(value)
            except json.JSONDecodeError:  # a word
                self.metadata[name] = value

    def reset(self):
        self.state = [np.zeros((1, x.shape[1]), np.float32) for x in self.session.get_inputs()[1:]]

    def __call__(self, obs):
        names = [x.name for x in self.session.get_inputs()]
        action, *self.state = self.session.run(None, dict(zip(names, (obs[None], *self.state), strict=True)))
        return action[0]
