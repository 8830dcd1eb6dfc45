"""A server of trained models over HTTP.

queue.py    waiting questions, answered together by one thread
labels.py   answers of fine-tuned models; adapters of one base model answer together
vectors.py  vectors of texts
prompts.py  masks that are filled, and texts that are written
models.py   the models of a server, by name
guard.py    limits, token and errors of every request
metrics.py  numbers for Prometheus
routes/     the addresses: one file for each published form
app.py      all of them as one application
"""
