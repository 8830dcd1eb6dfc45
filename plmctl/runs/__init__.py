"""From a checked specification to a trained model.

resolve.py     opens the models and files that a run starts from, and decides open settings
session.py     one sitting of a run: its directory, processes, device and last lines
fit.py         the trainer of a session
pretraining.py, finetuning.py, distilling.py, graph_training.py   the four kinds of training
pretraining_plan.py, finetuning_plan.py   what a training executes, built of its settings
"""
