# MuJoCo Studio, its viewers: compiled in part, and without stubs.
from typing import Any

def __getattr__(name: str) -> Any: ...
