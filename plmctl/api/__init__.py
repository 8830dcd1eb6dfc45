"""What Python programs and notebooks use of plmctl: docs/python.md describes it.

loading.py   a trained model from wherever it lies
model.py     what one asks of it: tokens, vectors, predictions, texts, scores
texts.py     texts, pairs and records as a task reads them
settings.py  settings as the words that the command line has for them
training.py  the commands that train, and all others
state.py     what a command changes in its process, put back
records.py   rows as a list, as columns, as a data frame
runs.py      a run directory
studies.py   the folder of a study
"""
