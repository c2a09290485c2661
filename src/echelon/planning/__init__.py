"""How long a run would take on many GPUs, by rates measured on one and the speed of the links between them."""
