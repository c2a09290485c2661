"""A file per study: what is trained, what is kept of a run, and the page that is written about it."""
