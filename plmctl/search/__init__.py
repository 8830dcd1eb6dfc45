"""A search for settings and architectures. Its individuals are ordinary runs, which a strategy
chooses from a space, one after the other.

space.py        the interface of a space: its points, their changes, their words
dimension.py    one setting of a space: choices, an interval, layouts
layouts.py      layouts by a grammar
settings.py     a space of settings in Hydra's sweep grammar
"""
