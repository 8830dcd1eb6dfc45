"""Speed of each recipe beside BERT's or another's, and what the rule for FLOPs says it should be.

    # tokens of WordPiece; default: the text that comes with Python
    python benchmarks/recipes.py --tokens wiki-tokens
    python benchmarks/recipes.py --recipes bert albert electra --size mini --rounds 3 --threads 1
    # a recipe with settings of its own, beside another one than bert
    python benchmarks/recipes.py --tokens linked-tokens --base "wklm objective.wklm.weight=0" \
      --recipes wklm "ernie_thu model.entities.path=runs/graph model.entities.knowledge=linked"

Every recipe runs at the same size, row length, batch and vocabulary, as a process of its own;
rounds alternate, medians count. The first updates of a process, in which allocators and threads
settle, are not timed. `expected`: the base's speed by the ratio of training FLOPs a token (plmctl
pretrain --dry-run); Muon's own work and random numbers are not in that rule.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RECIPES = ["bert", "roberta", "albert", "spanbert", "structbert", "electra", "modern_encoder"]
WARM = 4  # updates that are not timed


def words(args: argparse.Namespace, recipe: str) -> list[str]:
    """The settings that all recipes share here."""
    data = [f"data.path={args.tokens}"] if args.tokens else []
    made = [] if args.tokens else ["tokenizer=wordpiece", f"tokenizer.vocab_size={args.vocab}"]
    name, *own = shlex.split(recipe)
    return [
        name,
        f"size={args.size}",
        f"format.max_length={args.length}",
        f"train.batch_size={args.batch}",
        *data,
        *made,
        *own,
    ]


def plmctl(*given: str, threads: int) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "plmctl", "pretrain", *given]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout


def flops(args: argparse.Namespace, recipe: str) -> float:
    report = json.loads(plmctl(*words(args, recipe), "--dry-run", "--json", threads=args.threads))
    return float(report["run"]["training FLOPs per token"])


def speed(args: argparse.Namespace, recipe: str) -> float:
    """Real tokens a second after the first updates."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        length = [
            f"train.steps={WARM + args.steps}",
            f"train.log_every={WARM}",
            "train.eval_every=0",
            "train.save_every=0",
        ]
        plmctl(*words(args, recipe), *length, "eval.rows=8", f"run.dir={run}", threads=args.threads)
        records = [
            json.loads(line)
            for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        ]
    known = {record["step"]: record for record in records if "seconds" in record}
    first, last = known[WARM], known[max(known)]
    return (last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--base", default="bert")
    parser.add_argument("--tokens", help="a token directory")
    parser.add_argument("--size", default="mini")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument(
        "--steps", type=int, default=12, help="timed updates of a run; a multiple of 4"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    names = [args.base, *(name for name in args.recipes if name != args.base)]
    cost = {name: flops(args, name) for name in names}
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(args.rounds):
        for name in names:
            found[name].append(speed(args, name))
    print(
        f"| recipe | MFLOPs a token | tokens/s | of {args.base}'s | expected | found / expected"
        " |\n|---|---|---|---|---|---|"
    )
    for name in names:
        ratios = [own / base for own, base in zip(found[name], found[args.base], strict=True)]
        ratio, expected = statistics.median(ratios), cost[args.base] / cost[name]
        cells = [
            f"{cost[name] / 1e6:.1f}",
            f"{statistics.median(found[name]):,.0f}",
            f"{ratio:.2f} ({min(ratios):.2f}..{max(ratios):.2f})",
        ]
        print(f"| {name} | {' | '.join(cells)} | {expected:.2f} | {ratio / expected:.2f} |")


if __name__ == "__main__":
    main()
