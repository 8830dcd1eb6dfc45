"""From a checked specification to a trained model.

resolve.py     opens what a run starts from, and decides what is left open
check.py, estimate.py   the problems of a run before it starts, its memory and its time
session.py     one sitting of a run: its directory, processes, device and last lines
fit.py         the trainer of a session
pretraining.py, finetuning.py, distilling.py, graph_training.py   the four kinds of training
pretraining_plan.py, finetuning_plan.py   what a training executes, built of its settings
"""
