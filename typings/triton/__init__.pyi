# Triton comes with CUDA builds of torch only; nothing of it is typed here.
from typing import Any

def __getattr__(name: str) -> Any: ...
