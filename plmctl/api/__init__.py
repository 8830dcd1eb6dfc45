"""The part of plmctl that Python programs and notebooks use; docs/python.md describes it.

loading.py   a trained model from any folder
model.py     its methods: tokens, vectors, predictions, texts, scores
texts.py     texts, pairs and records as a task reads them
settings.py  settings as the words that the command line has for them
training.py  the commands that train, and all others
state.py     the state of the process, put back after a command
records.py   rows as a list, as columns, as a data frame
runs.py      a run directory
studies.py   the folder of a study
"""
