"""Runs on different machines that learn from each other through a shared folder or object store, without a coordinator.

Each island is a whole run. Now and then it publishes its best network (`records.py`) in the store (`store.py`), reads
what others have published, and goes on as a copy of one of them where that is clearly better (`island.py`).
"""
