"""What a run stores in its folder: config, metrics, checkpoints, diagnostics, replays."""
