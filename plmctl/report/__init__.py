"""Reports: one page on the folders of runs and studies, from templates over results.

- `subject.py`: the subject of a report, and its results by their type.
- `wishes.py`: the options for optional panels.
- `panel.py`: a panel; `panels/` has those of runs, `study_panels.py` those of a study.
- `write.py`: all panels on one page, and the files of a report.
- `page.py`: blocks as HTML and Markdown; `style.py` gives them light and dark colours, `page.js`
  shows values at the pointer and wide tables as lists.
- `figures.py`: pictures and tables as files of their own; `latex.py` sets a table.
- `charts.py`: lines, levels and histograms; `grids.py` draws heat maps and tokens.
- `studies.py`, `study_tables.py`, `sweeps.py`, `sweep_tasks.py`: studies and sweeps.
- `compare.py`, `predicted.py`, `decided.py`: predictions of one or two systems.
- `card.py`: a model card; `data_check.py` shows the check of data.
"""
