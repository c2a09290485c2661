"""What it takes to add up a gradient over GPUs, and to exchange parameters through a store."""

import math
from dataclasses import dataclass

GB, GBIT, MBIT = 1e9, 1e9 / 8, 1e6 / 8
"""Bytes per second of a GB/s, a Gb/s and a Mb/s."""


@dataclass(frozen=True)
class Links:
    """How machines are connected. The defaults: nodes of eight H200 with NVLink and a network card each."""

    gpus_per_node: int = 8
    node_gb: float = 450.0
    """GB/s that a GPU sends to another of its node."""
    node_us: float = 4.0
    """Microseconds of one hop in a node."""
    network_gbit: float = 400.0
    """Gb/s that a GPU sends to one of another node."""
    network_us: float = 10.0
    """Microseconds of one hop between nodes."""
    store_mbit: float = 100.0
    """Mb/s of an island to the store that all share."""
    store_ms: float = 50.0
    """Milliseconds until the store answers."""


def all_reduce_seconds(size: float, gpus: int, links: Links) -> float:
    """Time to add up `size` bytes over so many GPUs, first in each node, then between nodes.

    Among k members every one sends 2 (k-1)/k of its data, and the sum takes 2 log2 k hops, up a tree and down again.
    Between nodes, each GPU adds up its own part of the node's sum over its own card.
    """
    inside = min(gpus, links.gpus_per_node)
    nodes = math.ceil(gpus / links.gpus_per_node)
    in_node = _seconds(size, inside, links.node_gb * GB, links.node_us)
    return in_node + _seconds(size / inside, nodes, links.network_gbit * GBIT, links.network_us)


def _seconds(size: float, members: int, rate: float, hop_us: float) -> float:
    if members == 1:
        return 0.0
    return 2 * (members - 1) / members * size / rate + 2 * math.ceil(math.log2(members)) * hop_us * 1e-6


def sent_bytes(size: float, gpus: int) -> float:
    """Bytes that each GPU sends to add up `size` bytes over all of them."""
    return 2 * (gpus - 1) / gpus * size


def exchange_seconds(size: float, links: Links) -> float:
    """Time in which an island puts `size` bytes into the store and takes as many out."""
    return 2 * (size / (links.store_mbit * MBIT) + links.store_ms * 1e-3)
