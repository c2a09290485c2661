# Warp is an optional dependency and generates its kernels at run time; nothing of it is typed here.
from typing import Any

def __getattr__(name: str) -> Any: ...
