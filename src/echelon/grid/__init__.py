"""A grid of runs: the cells of a comparison, each trained in a process of its own."""
