# Weights & Biases is an optional dependency.
from typing import Any

def __getattr__(name: str) -> Any: ...
