"""A run's metrics, written to files and sent to services."""
