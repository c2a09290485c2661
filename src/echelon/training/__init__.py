"""The training loop and one iteration of it."""
