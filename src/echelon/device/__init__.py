"""What runs on the device: graphs, compiled kernels, timers."""
