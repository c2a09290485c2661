"""The report of several runs: statistics, figures, tables, one HTML page."""
