"""A study: arms x seeds run as ordinary commands, and a table of what the differences are worth.

study.py       a study file as checked dataclasses, every mistake at once
arms.py        rows and grids of overrides as arms
composing.py   each arm's configs, composed and checked before anything runs
checks.py      are the arms comparable, and does every metric exist?
content.py     what a job depends on, as a key
plan.py        arms x seeds x stages as jobs that share what they can
job.py         one job, as a child process
run.py         the jobs of a plan and how each stands; what is finished stays finished
local.py       ... run on this machine, in sequence or side by side
launched.py    ... run wherever a Hydra launcher puts them
early.py       the rule that ends hopeless runs
results.py     the numbers of finished jobs
statistics.py  differences, intervals, tests, verdicts
table.py       the table as Markdown, HTML, CSV and JSON
shown.py       its rows for people
curves.py      learning curves of all arms in one picture
"""
