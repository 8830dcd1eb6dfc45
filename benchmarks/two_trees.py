"""Processor seconds of an update, and of a written token, in two checkouts of this repository.

    python benchmarks/two_trees.py ../before .
    python benchmarks/two_trees.py ../before . --recipes gpt electra --rounds 5

The runs of both checkouts alternate, and the shortest counts: whatever else the machine does can
only add to it. A long run less a short one is shared out, so that starting does not count.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

SHORT = 4  # updates that are not timed: allocators and threads settle in them
PROMPTS = 32  # texts that are written one after the other
PLAIN = ["tokenizer=char", "train.eval_every=0", "train.save_every=0", "eval.rows=8", "seed=1"]


def seconds(tree: Path, *words: str) -> float:
    """Processor seconds, user and system, of a command of the plmctl in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1"}
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "plmctl", *words]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime


def pretrain(tree: Path, updates: int, *, recipe: str, text: str) -> float:
    """Seconds of a short pretraining of a recipe, as it stands but for its text."""
    with tempfile.TemporaryDirectory() as folder:
        given = [f"data.path={text}", f"train.steps={updates}", f"run.dir={folder}/run"]
        return seconds(tree, "pretrain", recipe, *PLAIN, *given)


def generate(tree: Path, tokens: int, *, model: str) -> float:
    """Seconds of writing so many tokens behind each of `PROMPTS` prompts."""
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.txt"
        prompts.write_text("The\n" * PROMPTS, encoding="utf-8")
        given = [f"input={prompts}", f"max_new={tokens}", "batch_size=1", "device=cpu"]
        return seconds(tree, "generate", f"checkpoint={model}", *given)


def compare(
    name: str, trees: list[Path], rounds: int, counts: tuple[int, int], run: Callable[..., float]
) -> None:
    """Print the smallest figure of each tree and their ratio: `run(tree, count)` does as much of
    the work as each of `counts` says, and what the longer one takes more is shared out.
    """
    runs = [(tree, count) for tree in trees for count in counts]
    found: dict[tuple[Path, int], float] = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        found = {key: min(least, run(*key)) for key, least in found.items()}
    short, long = counts
    old, new = ((found[tree, long] - found[tree, short]) / (long - short) for tree in trees)
    print(f"{name:<16}{old * 1e3:>10.1f} ms {new * 1e3:>10.1f} ms   {old / new:.2f}x", flush=True)


def main() -> None:
    """Compare all recipes asked for, and generation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--recipes", nargs="*", default=["bert", "gpt", "electra", "t5"])
    parser.add_argument("--text", default=str(Path(__file__).resolve().parents[1] / "README.md"))
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=100, help="to write; 0: no generation")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    trees, text = [chosen.old, chosen.new], chosen.text
    print(f"{'':<16}{'old':>13}{'new':>14}   speed of the new")
    for recipe in chosen.recipes:
        counts = (SHORT, SHORT + chosen.updates)
        run = partial(pretrain, recipe=recipe, text=text)
        compare(f"update, {recipe}", trees, chosen.rounds, counts, run)
    if chosen.tokens:
        with tempfile.TemporaryDirectory() as folder:
            model = f"{folder}/gpt"
            given = [f"data.path={text}", "train.steps=2", f"run.dir={model}"]
            seconds(chosen.old, "pretrain", "gpt", *PLAIN, *given)
            run = partial(generate, model=model)
            compare(f"{PROMPTS} tokens", trees, chosen.rounds, (1, chosen.tokens), run)


if __name__ == "__main__":
    main()
