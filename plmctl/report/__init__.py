"""Reports: what runs and studies have left in their folders, on one page.

subject.py    what a report is about and what is wished for
options.py    the same, as the command line says it
build.py      all panels on one page
panels/       the parts of a page, a file each
runs.py       what a run's folder says
studies.py    what a study's folder says
mean_curves.py    learning curves of several runs as one, with a band
statistics.py     differences, intervals, tests, verdicts
study_tables.py   the rows of a study's table for people
page.py       blocks as HTML and Markdown
style.py      their look, light and dark
chart.py      curves as SVG
bars.py       histograms, and levels with their spread
examples.py   the texts behind predictions
glue.py       GLUE's averages, and people's scores
sentences.py  sentences as a batch
layers.py     how far each layer moves its input
maps.py       what heads attend to
probing.py    what a linear map reads off each layer
card.py       a model card
checked.py    the page of a data check
"""
