"""Text generation: a model reads token by token, and a search chooses the next token.

    step.py      a model that gives the log-probabilities of the next token
    search.py    the interface of searches, and the rules that all obey (least length, n-grams,
                 first token)
    walk.py      one text a row, token by token: what greedy search and sampling share
    greedy.py    the likeliest token, always
    sample.py    a drawn token: temperature, top-k, top-p
    beam.py      the likeliest texts of several kept side by side
    decode.py    `generate`
    together.py  texts that join a running batch and leave it
    speculation.py  a smaller model that drafts tokens
    packed.py    linear maps laid out for few rows at a time
    layouts.py   the layouts that are fastest on this machine
    few_bits.py  linear maps with weights of 8 or 4 bits
    fill.py      the tokens that a model predicts at the masks of a text
    prompts.py   the prompts of `plmctl generate` as ids
    answers.py   the written texts in the order of the prompts, plain or as JSON lines

`generate` is the one entry of commands and tasks.
"""
