"""A run's policy taken out of it: as a function in Python, or as one file for another machine."""
