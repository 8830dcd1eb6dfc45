"""From a fine-tuned run to a smaller and faster model with nearly the same score.

target.py    the target that a user types: latency:8x, size:5MB
shape.py     layers, heads and neurons that stay, and the run's own weights cut to them
form.py      the libraries that compute a file, and the bits of its numbers
files.py     the files of a model, and what answers from them
bench.py     the rows that time every model, and the costs of a model
memory.py    the memory of a process that answers
ladder.py    the shapes to train, from the largest on
training.py  the training of a shape, with the run as its teacher
works.py     the work of the other steps: measure the run, time a shape, write a model
climb.py     the steps one after the other, as jobs
rung.py      a model on the ladder, and the choice among them
page.py      the table and the picture
run.py       the command
"""
