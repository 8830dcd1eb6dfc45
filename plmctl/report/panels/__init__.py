"""The parts of a report, a file each: `ORDER`, its place on the page, and `panel(subject) ->
blocks`, which may be none.

A new file here is on the next page; nothing else has to know of it.

of runs       overview, differences, curves, throughput, scores, glue, confusion, tags, answers,
              mistakes, settings
of a model    attention, layers, probes
of a study    study, study_table, study_curves, study_cost, study_jobs
"""
