"""Every recipe as a case of `fingerprints.py`: as its header launches it, with small numbers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from fingerprint.case import LENGTH, SIZE, TRAIN, VOCABULARY, Case

LEFT_OUT = ("kepler",)  # there are no links between the entities of our few held-out documents
UPDATES = ("train.steps=20", "train.eval_every=10", "eval.rows=16", "data.valid_share=0.1")


def header_lines(recipe: Path, field: str) -> list[list[str]]:
    """The words behind `plmctl` of each line `# <field>:` of the comment that begins a recipe, up
    to a remark in brackets.
    """
    found: list[str] = []
    inside = False
    for line in recipe.read_text(encoding="utf-8").splitlines():
        start = re.fullmatch(r"# (\w+): +(.*)", line)
        if start:
            inside = start[1] == field
            found += [start[2]] if inside else []
        elif inside and re.match(r"# {8,}\S", line):
            found[-1] += " " + line.lstrip("# ")
        else:
            inside = False
    return [shlex.split(line.partition(" (")[0])[1:] for line in found]


def own_text(words: list[str]) -> list[str]:
    """The words with our texts in place of those that they name."""
    parallel = any(word.startswith("data.target_path=") for word in words)
    texts = ("pairs.en", "pairs.zh") if parallel else ("text.txt", "other.txt")
    found = []
    for word in words:
        key, _, _ = word.partition("=")
        is_text = key.startswith("data.") and key.endswith("path")
        other = "target" in key or "second" in key
        text = "linked/text.jsonl" if word.endswith("linked/text.jsonl") else texts[other]
        text = "words" if word == "data.path=words" else text
        word = f"{word.removesuffix('linked')}inputs/linked" if word.endswith("=linked") else word
        word = f"{key}=inputs/sentiment.tsv" if key.endswith("lexicon.path") else word
        found.append(f"{key}=inputs/{text}" if is_text else word)
    if "data.path=words" in words:
        found.append("format.mode=replace")  # these texts have no colon
    vectors = ("model.entities.path=", "model.entities.knowledge=")  # without them: random ones
    return [word for word in found if not word.startswith(vectors)]


def in_small(words: list[str], folders: dict[str, str], begun: bool) -> tuple[str, ...]:
    """A launch line with small numbers, and with our folders in place of those that it names.

    Args:
        words: of the launch line, behind `plmctl`.
        folders: which case makes what a folder of the header stands for.
        begun: whether the model begins as another one, which decides its size.
    """
    found = []
    for word in own_text(words):
        key, _, value = word.partition("=")
        if key not in ("run.dir", "size") and not key.startswith("size."):
            found.append(f"{key}={folders[value]}" if value in folders else word)
    keys = {word.partition("=")[0] for word in words}
    size = () if begun or "init" in keys else SIZE
    vocabulary = () if keys & {"init", "teacher"} else VOCABULARY
    return (*found, *size, *vocabulary, *LENGTH, *TRAIN, *UPDATES)


def recipe_cases(folder: Path) -> list[Case]:
    """Each recipe as its header launches it, behind what comes before it; equal lines once."""
    recipes = [recipe for recipe in folder.glob("*.yaml") if recipe.stem not in LEFT_OUT]
    before = {recipe: header_lines(recipe, "Before") for recipe in sorted(recipes)}
    made: dict[tuple[str, ...], str] = {}  # the name of what a line makes
    for recipe in sorted(before, key=lambda recipe: len(before[recipe])):
        folders = {"runs/bert": "recipe/bert"}  # of a header that does not say how it is made
        for line in before[recipe]:
            if not any(word.startswith("data.path=") for word in line):
                line = [*line, "data.path=corpus.txt"]  # which is not the text of the launch line
            name = made.setdefault(in_small(line, folders, False), f"before/{recipe.stem}")
            folders |= {word[8:]: name for word in line if word.startswith("run.dir=")}
        (line,) = header_lines(recipe, "Launch")
        begun = re.search(r"^init:", recipe.read_text(encoding="utf-8"), re.MULTILINE)
        made[in_small(line, folders, begun is not None)] = f"recipe/{recipe.stem}"
    return [Case(name, (*words, f"run.dir={name}")) for words, name in made.items()]
