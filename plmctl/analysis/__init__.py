"""Measures of trained models and of runs, for reports, probes and Python.

- `measure.py`: the base class of measures, and all measures of one model.
- `sample.py`: the sentences and held-out rows that models read.
- `stacks.py`: the stacks of a model with their patterns.
- `layers.py`, `attention.py` and most others: one measure each.
- `runs.py`: the numbers of a run directory, and their means over seeds.
- `likeness.py`: losses that do not compare.
- `statistics.py`: differences, intervals, tests, power; `sequences.py` repeats tests.
- `paired.py`: two systems on the same examples.
"""
