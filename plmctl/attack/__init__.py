"""Attacks: texts that people read as before, and of which a model says something else."""
