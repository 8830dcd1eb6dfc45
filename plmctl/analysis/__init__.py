"""Measures of trained models and of runs, for reports, probes and Python.

A module of this folder is one measure, and `measure.py` has their base class. `sample.py` and
`stacks.py` prepare models for them. `runs.py` reads the numbers of run directories.
`statistics.py`, `sequences.py` and `paired.py` compare numbers.
"""
