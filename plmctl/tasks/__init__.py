"""Tasks with labels: one module a task, of these rooms, lowest first:

scores/    scores of predictions, each with the name of its official scorer
record.py  a labelled example, and the interface of readers
readers/   one published layout of files a module
layouts/   rows of examples
answers/   losses and decisions that tasks share
task.py    the interface of a task
"""
