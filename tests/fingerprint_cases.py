"""The command lines that `fingerprints.py` runs: every recipe, and each command on what the recipes have made."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

TRAIN = ("train.precision=fp32", "train.threads=1", "train.batch_size=8", "train.log_every=1", "train.save_every=0")
PRETRAIN = (*TRAIN, "train.steps=20", "train.eval_every=10", "eval.rows=16", "data.valid_share=0.1")
SIZE = ("size=tiny", "size.width=32", "size.inner_width=64", "size.num_heads=2")
VOCABULARY = ("tokenizer.vocab_size=400",)
LENGTH = ("format.max_length=64",)


@dataclass(frozen=True)
class Case:
    """A command whose results are fingerprinted.

    Args:
        name: also the folder that it writes, from the folder in which all cases run.
        words: behind `plmctl`; a value that is the name of another case is the folder of that one.
        needs: names of the cases whose folders the words name.
        outputs: globs of what it writes, beside checkpoints and metrics.jsonl, and has to be the same.
        ignored: keys of JSON in these that depend on the clock or on places.
        prints: whether what it prints is JSON, kept as stdout.json.
    """

    name: str
    words: tuple[str, ...]
    needs: frozenset[str] = frozenset()
    outputs: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    prints: bool = False


def header_lines(recipe: Path, field: str) -> list[list[str]]:
    """The command lines behind `# <field>:` in the comment that a recipe begins with, as words."""
    lines = [line for line in recipe.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    found: list[str] = []
    inside = False
    for line in lines:
        start = re.fullmatch(r"# (\w+): +(.*)", line)
        if start:
            inside = start[1] == field
            found += [start[2]] if inside else []
        elif inside and re.match(r"# {8,}\S", line):
            found[-1] += " " + line.lstrip("# ")
    return [shlex.split(line)[1:] for line in found]


def own_text(words: list[str]) -> list[str]:
    """The words with our texts in place of those that they name."""
    parallel = any(word.startswith("data.target_path=") for word in words)
    texts = ("inputs/pairs.en", "inputs/pairs.zh") if parallel else ("inputs/text.txt", "inputs/other.txt")
    found = []
    for word in words:
        key, _, value = word.partition("=")
        if key.startswith("data.") and key.endswith("path"):
            value = texts["target" in key or "second" in key]
        found.append(f"{key}={value}" if value else word)
    return found


def recipe_case(name: str, words: list[str], folders: dict[str, str], begun: bool = False) -> Case:
    """A launch of a header in small.

    Args:
        name: of the case.
        words: of the launch line, behind `plmctl`.
        folders: which case makes what a folder of the header stands for.
        begun: whether the model begins as another one, which decides its size; so does `init=` among the words.
    """
    needs = set()
    for n, word in enumerate(words):
        key, _, value = word.partition("=")
        if key in ("init", "teacher", "checkpoint"):
            needs.add(folders[value])
            words[n] = f"{key}={folders[value]}"
    keys = {word.partition("=")[0] for word in words}
    begun = begun or "init" in keys
    small = (*(() if begun else SIZE), *(() if keys & {"init", "teacher"} else VOCABULARY), *LENGTH)
    given = [word for word in words if not word.startswith(("run.dir=", "size=", "size."))]
    return Case(name, (*given, *small, *PRETRAIN, f"run.dir={name}"), frozenset(needs))


def recipe_cases(folder: Path) -> list[Case]:
    """Each recipe as its header launches it, behind the runs that come before it; what is launched alike runs once."""
    recipes = sorted(folder.glob("*.yaml"), key=lambda recipe: (len(header_lines(recipe, "Before")), recipe))
    made: dict[tuple[str, ...], Case] = {}
    for recipe in recipes:
        folders: dict[str, str] = {}
        for words in header_lines(recipe, "Before"):
            case = recipe_case(f"before/{recipe.stem}", own_text(words), folders)
            name = made.setdefault(case.words[:-1], case).name
            folders |= {word.partition("=")[2]: name for word in words if word.startswith("run.dir=")}
        (words,) = header_lines(recipe, "Launch")
        begun = bool(re.search(r"^init:", recipe.read_text(encoding="utf-8"), re.MULTILINE))
        case = recipe_case(f"recipe/{recipe.stem}", own_text(words), folders, begun)
        made[case.words[:-1]] = case
    return list(made.values())


def tokenizer_cases() -> list[Case]:
    kinds = ("bpe", "byte_bpe", "char", "unigram", "word", "wordpiece")
    return [
        Case(
            f"tokenize/{kind}",
            ("tokenize", f"tokenizer={kind}", *VOCABULARY, "data.path=inputs/text.txt", "data.valid_share=0.1", "processes=1",
             f"out=tokenize/{kind}"),
            outputs=("*.npy", "tokenizer/*"),
        )
        for kind in kinds
    ]  # fmt: skip


def cases(recipes: Path) -> list[Case]:
    """All of them, what is needed before what needs it.

    Args:
        recipes: the folder of the recipes' YAML files.
    """
    return [*tokenizer_cases(), *recipe_cases(recipes)]
