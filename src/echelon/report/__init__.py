"""What runs show, taken together: statistics, figures, the report."""
