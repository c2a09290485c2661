"""Where an iteration's time goes."""
