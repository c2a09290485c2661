"""Scoring the policies of a run."""
