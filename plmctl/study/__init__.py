"""A study: arms x seeds run as ordinary commands, and a table of the evidence for their
differences.

study.py       a study file as checked dataclasses, every mistake at once
arms.py        rows and grids of overrides as arms
composing.py   each arm's configs, composed and checked before anything runs
checks.py      are the arms comparable, and does every metric exist?
plan.py        arms x seeds x stages as jobs that share what they can
early.py       the rule that ends hopeless runs
run.py         run the jobs of a plan, write the table
results.py     the numbers of finished jobs
table.py       the table as Markdown, HTML, CSV and JSON
latex.py       ... and for a paper
show.py        the plan and the table on the terminal
"""
