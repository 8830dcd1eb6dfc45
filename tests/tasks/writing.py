"""Pairs to translate word by word, from a dictionary of eight words, as files of all layouts."""

import random

WORDS = {
    "red": "rot",
    "green": "gruen",
    "blue": "blau",
    "big": "gross",
    "small": "klein",
    "old": "alt",
    "new": "neu",
    "cold": "kalt",
}


def pairs(count, *, seed=0, longest=3):
    draw = random.Random(seed)
    sides = [draw.choices(sorted(WORDS), k=draw.randint(1, longest)) for _ in range(count)]
    return [(" ".join(words), " ".join(WORDS[word] for word in words)) for words in sides]


def parallel(folder, *, train=64, dev=12, **how):
    for name, count, seed in (("train", train, 0), ("dev", dev, 1)):
        found = pairs(count, seed=seed, **how)
        (folder / f"{name}.en").write_text("".join(f"{source}\n" for source, _ in found))
        (folder / f"{name}.de").write_text("".join(f"{target}\n" for _, target in found))
    return folder
