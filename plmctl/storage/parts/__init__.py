"""Checkpoints that every process writes and reads in parts, in the format of
torch.distributed.checkpoint.
"""
