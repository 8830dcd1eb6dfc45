"""From a checked specification to what a command does.

resolve.py     opens what a run starts from, and decides what is left open
assemble.py    the model of a spec
session.py     one sitting of a run: its directory, processes, device and last lines
fit.py         the trainer of a session
pretraining.py, tuning/, teaching/, graph_training.py   what is trained
checks/        do the parts fit together, and what will it cost?
weights/       models from wherever they lie, changed and written elsewhere
evaluation/    `plmctl eval`; embedding/: `plmctl embed`
data_sets/     `plmctl tokenize` and `plmctl data`
peft/          adapters: what was trained beside a base, also in the layout of `peft`
"""
