"""The command lines that `fingerprints.py` runs: every recipe, and commands on what these make."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

TRAIN = (
    *("train.precision=fp32", "train.threads=1", "train.batch_size=8"),
    *("train.log_every=1", "train.save_every=0"),
)
UPDATES = ("train.steps=20", "train.eval_every=10", "eval.rows=16", "data.valid_share=0.1")
SIZE = ("size=tiny", "size.width=32", "size.inner_width=64", "size.num_heads=2")
LENGTH = ("format.max_length=64",)
VOCABULARY = ("tokenizer.vocab_size=400",)


@dataclass(frozen=True)
class Case:
    """A command whose results are fingerprinted.

    Args:
        name: also the folder that it writes, in the folder where all cases run.
        words: behind `plmctl`; a value that is the name of another case is that one's folder.
        needs: the names of the cases whose folders it reads.
        outputs: globs of files that it writes beside checkpoints and metrics.jsonl.
        ignored: keys of JSON in these that the clock or the place of a file decides.
        prints: the name of a file that keeps what it prints; null: nothing that counts.
    """

    name: str
    words: tuple[str, ...]
    needs: frozenset[str] = frozenset()
    outputs: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    prints: str | None = None


def header_lines(recipe: Path, field: str) -> list[list[str]]:
    """The words behind `plmctl` of each line `# <field>:` of the comment that begins a recipe."""
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
    return [shlex.split(line)[1:] for line in found]


def own_text(words: list[str]) -> list[str]:
    """The words with our texts in place of those that they name."""
    parallel = any(word.startswith("data.target_path=") for word in words)
    texts = ("pairs.en", "pairs.zh") if parallel else ("text.txt", "other.txt")
    found = []
    for word in words:
        key, _, _ = word.partition("=")
        is_text = key.startswith("data.") and key.endswith("path")
        other = "target" in key or "second" in key
        found.append(f"{key}=inputs/{texts[other]}" if is_text else word)
    return found


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


def needs(words: tuple[str, ...], names: set[str]) -> frozenset[str]:
    """Those of `names` that are values of `words`."""
    return frozenset({word.partition("=")[2] for word in words} & names)


def recipe_cases(folder: Path) -> list[Case]:
    """Each recipe as its header launches it, behind what comes before it; equal lines once."""
    before = {recipe: header_lines(recipe, "Before") for recipe in sorted(folder.glob("*.yaml"))}
    made: dict[tuple[str, ...], str] = {}  # the name of what a line makes
    for recipe in sorted(before, key=lambda recipe: len(before[recipe])):
        folders: dict[str, str] = {}
        for line in before[recipe]:
            name = made.setdefault(in_small(line, folders, False), f"before/{recipe.stem}")
            folders |= {word[8:]: name for word in line if word.startswith("run.dir=")}
        (line,) = header_lines(recipe, "Launch")
        begun = re.search(r"^init:", recipe.read_text(encoding="utf-8"), re.MULTILINE)
        made[in_small(line, folders, begun is not None)] = f"recipe/{recipe.stem}"
    return [
        Case(name, (*words, f"run.dir={name}"), needs(words, set(made.values())))
        for words, name in made.items()
    ]


def tokenizer_cases() -> list[Case]:
    kinds = ("bpe", "byte_bpe", "char", "unigram", "word", "wordpiece")
    text = ("data.path=inputs/text.txt", "data.valid_share=0.1", "processes=1")
    found = []
    for kind in kinds:
        name = f"tokenize/{kind}"
        words = ("tokenize", f"tokenizer={kind}", *VOCABULARY, *text, f"out={name}")
        found.append(Case(name, words, outputs=("*.npy", "tokenizer/*")))
    return found


def cases(recipes: Path) -> list[Case]:
    """All of them, what is needed before what needs it.

    Args:
        recipes: the folder of the recipes' YAML files.
    """
    return [*tokenizer_cases(), *recipe_cases(recipes)]
