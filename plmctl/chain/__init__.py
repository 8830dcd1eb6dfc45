"""A recipe's whole chain of commands, from its header: tokenize, pretrain (what comes before, and
itself), fine-tune, evaluate.

stages.py   pretrainings, from the lines `# Before:` and `# Launch:` of the header
plan.py     every step composed and checked before the first one runs
run.py      show and run the steps, one after the other
page.py     the result of each step, and the page of all
listing.py  the list of recipes and studies, from their files alone
show.py     the output of `plmctl recipes ls`, `show` and `cp`
demo.py     `make demo`: the main job on the text that ships with Python
"""
