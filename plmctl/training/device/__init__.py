"""The machine and its use in training: memory, precision, compilation, speed."""
