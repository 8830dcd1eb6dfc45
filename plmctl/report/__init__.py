"""Reports: one page on the folders of runs and studies.

subject.py    the subject of a report, and the options for optional panels
wishes.py     these options, parsed from the command line
build.py      all panels on one page
panels/       the panels of a page, one file each
runs.py       reads a run directory
studies.py    reads the folder of a study
mean_curves.py    learning curves of several runs as one, with a band
statistics.py     differences, intervals, tests, verdicts
study_tables.py   the rows of a study's table as text
page.py       blocks as HTML and Markdown
style.py      their style, light and dark
chart.py      curves as SVG
bars.py       histograms, and levels with their spread
examples.py   the texts behind predictions
benchmark.py  tasks that are averaged, beside people; benchmark_panel.py shows them
glue.py       GLUE's averages, and the human baseline
superglue.py  SuperGLUE's
sentences.py  sentences as a batch
layers.py     how far each layer moves its input
maps.py       attention maps
probing.py    linear probes of each layer
card.py       a model card
checked.py    the page of a data check
"""
