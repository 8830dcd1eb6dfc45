"""Measures of trained models and of runs, for reports, probes and Python.

measure.py    the base class of measures, and all measures of one model
sample.py     the sentences and held-out rows on which models are measured
stacks.py     the stacks of a model with their patterns
layers.py, attention.py, spans.py, patterns.py, positions.py, halting.py, buckets.py, probing.py
              one measure each
runs.py       the numbers of a run directory; curves.py averages them over seeds
likeness.py   losses that do not compare
statistics.py differences, intervals, tests, power; sequences.py tests repeatedly
paired.py     two systems on the same examples
"""
