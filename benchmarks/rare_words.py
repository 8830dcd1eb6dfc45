"""What are vectors of rare words worth? BERTRAM beside the vectors that a model has, and controls.

    python benchmarks/rare_words.py --model runs/bert --corpus corpus.txt \
      --wnlampro WNLaMPro.txt --similarity EN-RW-STANFORD.txt --out runs/rare

Words of the two lists that are several tokens of the model are given a token of their own, in place
of their pieces (plmctl inject form=replace). Arms:

  without   the model as it is
  add       BERTRAM, from letters and contexts
  form      the same run, letters alone
  context   a run without letters
  shuffled  the run of add; each word has the contexts of another one
  random    random vectors

A row is the mean (and the deviation) over seeds of BERTRAM; "without" has none. `plmctl ablate
bertram` has the same arms, and fine-tunes them; this script finds the rare words and prepares the
files, too. Everything is kept in --out: a second start continues.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ARMS = ("without", "add", "form", "context", "shuffled", "random")
WNLAMPRO = ("mrr/rare", "mrr/medium", "mrr")
TRAINED = set[Path]()  # runs that are known to be finished


def plmctl(*given: str) -> str:
    command = [sys.executable, "-m", "plmctl", *given]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def make(folder: Path, *given: str) -> Path:
    """A folder that a command writes, if it is not there already."""
    if not folder.exists():
        plmctl(*given)
    return folder


def find_rare(args: argparse.Namespace) -> list[str]:
    """The words of the lists that are several tokens of the model."""
    from plmctl.artifacts.loading import open_source

    tokenizer = open_source(args.model).tokenizer
    words = sorted(set(list_words(args)))
    return [word for word in words if len(tokenizer.encode(word)) > 1]


def list_words(args: argparse.Namespace) -> Iterator[str]:
    if args.wnlampro:
        for line in args.wnlampro.read_text(encoding="utf-8").splitlines():
            yield line.split("\t")[2].rpartition(" (")[0]
    if args.similarity:
        for line in args.similarity.read_text(encoding="utf-8").splitlines():
            yield from line.split()[:2]


def train(args: argparse.Namespace, mode: str, seed: int) -> Path:
    """A run of BERTRAM."""
    run = args.out / f"bertram-{mode}-{seed}"
    if run not in TRAINED:
        TRAINED.add(run)
        begin = ["--resume"] if run.exists() else []
        words = [f"init={args.model}", f"data.path={args.out / 'words'}", f"format.mode={mode}"]
        plmctl(
            "pretrain", "bertram", *begin, *words, f"seed={seed}", f"run.dir={run}", *args.settings
        )
    return run


def give_vectors(args: argparse.Namespace, arm: str, seed: int) -> Path:
    """The model of an arm."""
    if arm == "without":
        return Path(args.model)
    settings = {
        "form": ["+word_vectors.mode=form"],  # letters are learnt before both are mixed
        "shuffled": ["word_vectors.control=shuffled", f"word_vectors.seed={seed}"],
        "random": ["word_vectors=random", f"word_vectors.seed={seed}"],
    }
    mode = "context" if arm == "context" else "add"
    start = Path(args.model) if arm == "random" else train(args, mode, seed)
    out = args.out / f"model-{arm}-{seed}"
    given = [f"checkpoint={start}", f"into={args.model}", f"words={args.out / 'rare'}"]
    return make(out, "inject", *given, *settings.get(arm, []), "form=replace", f"out={out}")


def measure(args: argparse.Namespace, model: Path) -> dict[str, float]:
    """What a model reaches on the lists."""
    scores: dict[str, float] = {}
    if args.wnlampro:
        asked = ["task=wnlampro", f"task.path={args.wnlampro}", f"split={args.split}", "--json"]
        (found,) = json.loads(plmctl("eval", f"checkpoint={model}", *asked))["metrics"].values()
        scores |= {f"WNLaMPro {name}": found[name] for name in WNLAMPRO if name in found}
    if args.similarity:
        asked = ["task=word_similarity", f"task.path={args.similarity}", "--json"]
        found = json.loads(plmctl("eval", f"checkpoint={model}", *asked))["metrics"]["model"]
        scores |= {name: found[name] for name in (args.similarity.stem,) if name in found}
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", required=True, help="a masked language model")
    parser.add_argument("--corpus", required=True, help="the text that it has read")
    parser.add_argument("--wnlampro", type=Path, help="the file of WNLaMPro")
    parser.add_argument("--split", default="test", help="of WNLaMPro")
    parser.add_argument("--similarity", type=Path, help="a list of word pairs with scores")
    parser.add_argument("--least", type=int, default=100, help="how often learnt words stand there")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", default=ARMS, choices=ARMS)
    parser.add_argument("--out", type=Path, default=Path("runs/rare_words"))
    parser.add_argument("--settings", nargs="*", default=[], help="of plmctl pretrain bertram")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if not (args.wnlampro or args.similarity):
        parser.error("give --wnlampro or --similarity, or both")
    listed, contexts = args.out / "rare.txt", ["data", "contexts", f"data.path={args.corpus}"]
    listed.write_text("".join(f"{word}\n" for word in find_rare(args)), encoding="utf-8")
    words, rare = args.out / "words", args.out / "rare"
    make(words, *contexts, f"least={args.least}", f"out={words}")
    make(rare, *contexts, f"words={listed}", f"out={rare}")
    file = args.out / "scores.json"
    scores = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for seed in args.seeds:
        for arm in args.arms:
            name = arm if arm == "without" else f"{arm}-{seed}"
            if name not in scores:
                scores[name] = measure(args, give_vectors(args, arm, seed))
                file.write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
    columns = list(dict.fromkeys(key for found in scores.values() for key in found))
    print(f"| arm | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for arm in args.arms:
        rows = [scores[f"{arm}-{seed}"] for seed in args.seeds if f"{arm}-{seed}" in scores]
        rows = rows or [scores[arm]]
        cells = []
        for column in columns:
            values = [row[column] for row in rows if column in row]
            spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.3f}{spread}" if values else "")
        print(f"| {arm} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
