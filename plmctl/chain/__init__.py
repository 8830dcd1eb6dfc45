"""A recipe's whole chain of commands, from its header: tokenize, pretrain (what comes before, and
itself), fine-tune, evaluate.

stages.py   which pretrainings, from the lines `# Before:` and `# Launch:` of the header
plan.py     every step composed and checked before the first one runs
run.py      show and run the steps, one after the other
page.py     what each step shows at the end, and the page of all
listing.py  what recipes and studies say of themselves, from their files alone
show.py     what `plmctl recipes ls`, `show` and `cp` print
demo.py     `make demo`: the main job on the text that ships with Python
"""
