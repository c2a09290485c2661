from typing import Any

MODEL_FIELDS: frozenset[str]

class SimulationError(RuntimeError):
    ids: Any

class Batch:
    def __init__(self, model: Any, nsim: int, nthread: int = 0, persistent: bool = False) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
