"""How the processes of a run share one training: where tensors lie, whose gradients are summed."""
