"""The panels of a report, one file each: `ORDER`, its position on the page, and `panel(subject) ->
blocks`, which may be none.

A new file here is part of the next page; no other change is needed.

of runs       overview, differences, curves, throughput, scores, glue, superglue, confusion, tags,
              answers, mistakes, attacks, settings
of a model    attention, layers, probes
of a study    study, study_table, study_curves, study_cost, study_jobs
"""
