"""Strategies: how the processes of a run share one training, its tensors and its gradients."""
