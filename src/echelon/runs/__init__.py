"""A run is a folder: config, metrics, checkpoints, diagnostics. Whoever reads a run reads it through here."""
