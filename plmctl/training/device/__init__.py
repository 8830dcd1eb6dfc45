"""What this machine is, and how training uses it: memory, precision, compilation, speed."""
