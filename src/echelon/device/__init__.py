"""Running on the device: CUDA graphs, compiled kernels, timers."""
