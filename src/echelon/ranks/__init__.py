"""Processes that train one run together, each on its own GPU with its own share of the environments."""

from echelon.ranks.ranks import ALONE, Ranks, join

__all__ = ["ALONE", "Ranks", "join"]
