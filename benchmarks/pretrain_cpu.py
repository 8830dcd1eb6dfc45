"""Pretraining speed on CPU: plmctl beside `transformers` (Trainer, BertForMaskedLM or
GPT2LMHeadModel, its own collator).

    # tiny, mini and base; an hour or two on 2 cores
    python benchmarks/pretrain_cpu.py
    # next tokens, rows of 512
    python benchmarks/pretrain_cpu.py --model gpt --sizes mini
    # does it run
    python benchmarks/pretrain_cpu.py --sizes tiny --rounds 1 --steps 6 --words 20000 --vocab 2000

Both sides read the same packed rows without padding (BERT: 32 of 128 tokens, GPT: 8 of 512), BERT
masks 15% afresh; both use the same model shape, dropout 0.1, AdamW at the same constant rate, the
same cores, and each run is a process of its own. Runs alternate; the medians of the ratios count.
The first updates (compiling, warming up) are left out of the rate and their cost is stated beside
it. The share of the matmul rate divides model FLOPs (6 per weight and token, attention included,
the head only where it is asked) by a matrix product measured between the runs, in plmctl's type.
Bf16 is measured where the processor multiplies it (elsewhere an update takes minutes).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peers import need


@dataclass(frozen=True)
class Kind:
    """What is trained: rows, which share of the positions reaches the head, and our settings of
    it.
    """

    length: int
    batch: int
    asked: float
    term: str
    words: tuple[str, ...]


MODELS = {
    "bert": Kind(128, 32, 0.15, "mlm", ("objective=[mlm]", "noise.rate=0.15")),
    "gpt": Kind(512, 8, 1.0, "clm", ("gpt2", "tokenizer=wordpiece", "objective=[clm]")),
}
DROPOUT, LEARNING_RATE = 0.1, 5e-4
SHAPES = {"tiny": (2, 128), "mini": (4, 256), "base": (12, 768)}  # layers, width
UPDATES = {"tiny": 200, "mini": 80, "base": 20}  # timed ones
WARM = {"tiny": 10, "mini": 6, "base": 3}  # not timed
SIDES = ("plmctl", "transformers fp32", "transformers bf16")
HERE = Path(__file__).resolve().parent


def main() -> None:
    options = arguments()
    need("transformers", "accelerate")  # before the text is made and tokenized
    options.precision = find_precision(options.precision)
    with tempfile.TemporaryDirectory(prefix="plmctl-bench-") as temporary:
        work = Path(options.work or temporary)
        work.mkdir(parents=True, exist_ok=True)
        tokens = prepare(work, options)
        results = {size: measure(size, tokens, work, options) for size in options.sizes}
    show(results, MODELS[options.model])
    if options.out:
        Path(options.out).write_text(json.dumps(results, indent=1))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="bert", choices=list(MODELS))
    parser.add_argument("--sizes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=5, help="each runs every side once")
    parser.add_argument(
        "--steps", type=int, help="timed updates of a run (default: 200 tiny, 80 mini, 20 base)"
    )
    parser.add_argument(
        "--text",
        help="a text file or folder to train on; default: made-up words with bigram structure",
    )
    parser.add_argument("--vocab", type=int, default=30_522)
    parser.add_argument("--words", type=int, default=4_000_000, help="of the made-up text")
    parser.add_argument(
        "--precision",
        default="auto",
        choices=["auto", "fp32", "bf16"],
        help="of plmctl's side; auto: bf16 where the processor multiplies it, and fp32 elsewhere",
    )
    parser.add_argument("--compile", default="auto", help="train.compile of plmctl's side")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--work", help="keep the working files here (and reuse the tokens found there)"
    )
    parser.add_argument("--out", help="write all figures here as JSON")
    return parser.parse_args()


def find_precision(name: str) -> str:
    """fp32 or bf16: what a run of plmctl with this `train.precision` computes in."""
    import torch

    from plmctl.training.device.precision import choose

    return choose(name, torch.device("cpu")).name


def sides(options: argparse.Namespace) -> tuple[str, ...]:
    """Those that the processor can run in their own type."""
    return tuple(side for side in SIDES if options.precision == "bf16" or "bf16" not in side)


def prepare(work: Path, options: argparse.Namespace) -> Path:
    """Token shards for plmctl and the very same packed rows as `rows.npy` for the peer."""
    from plmctl.data.formats.blocks import Blocks
    from plmctl.data.shards import Shards
    from plmctl.text.tokenizer import Tokenizer

    length = MODELS[options.model].length
    tokens, rows = work / "tokens", rows_file(work, length)
    if rows.exists():
        return tokens
    text = Path(options.text) if options.text else made_up_text(work / "text.txt", options.words)
    plmctl(
        "tokenize",
        f"data.path={text}",
        "tokenizer=wordpiece",
        f"tokenizer.vocab_size={options.vocab}",
        f"out={tokens}",
    )
    vocab = Tokenizer.load(tokens / "tokenizer").vocab
    blocks = Blocks(vocab=vocab, max_length=length, crossing=True, specials=False)
    shards = Shards.open(tokens, split="train")
    plan = blocks.plan(shards, seed=0, epoch=0, input_length=length)
    text_rows = blocks.rows(shards, plan, np.arange(plan.rows)).seqs["text"]
    np.save(
        rows, np.asarray(text_rows.ids)[np.asarray(text_rows.length) == length].astype(np.int32)
    )
    (work / "vocab.json").write_text(
        json.dumps({"size": vocab.size, "mask": vocab.mask, "pad": vocab.pad})
    )
    return tokens


def rows_file(work: Path, length: int) -> Path:
    return work / f"rows-{length}.npy"


def made_up_text(path: Path, words: int, kinds: int = 60_000) -> Path:
    """Sentences of made-up words: Zipf frequencies, and after each word one of eight followers
    half of the time.
    """
    random = np.random.default_rng(0)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    names = ["".join(random.choice(syllables, 2 + n % 3)) + syllables[n % 70] for n in range(kinds)]
    weight = 1 / np.arange(1, kinds + 1)
    drawn = random.choice(kinds, words, p=weight / weight.sum())
    followers = random.choice(kinds, (kinds, 8), p=weight / weight.sum())
    follows, which = random.random(words) < 0.5, random.integers(0, 8, words)
    for place in range(1, words):
        if follows[place]:
            drawn[place] = followers[drawn[place - 1], which[place]]
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, words, 16):
            file.write(
                " ".join(names[i] for i in drawn[start : start + 16])
                + ".\n"
                + ("\n" if start % 160 == 0 else "")
            )
    return path


def measure(
    size: str, tokens: Path, work: Path, options: argparse.Namespace
) -> dict[str, list[dict]]:
    """Alternating runs of every side on one size: `{side: [figures of each run]}`, and "matmul":
    [FLOP/s].
    """
    updates = options.steps or UPDATES[size]
    asked = sides(options)
    found: dict[str, list[dict]] = {side: [] for side in asked} | {"matmul": []}
    for turn in range(options.rounds):
        order = asked if turn % 2 == 0 else asked[::-1]
        for side in order:
            run = ours if side == "plmctl" else peer
            found[side].append(run(Job(side, size, tokens, work, updates, turn, options)))
            print(
                f"{size} {turn + 1}/{options.rounds} {side}:"
                f" {found[side][-1]['tokens_per_second']:,.0f} tokens/s",
                flush=True,
            )
        product = [sys.executable, "-c", MATMUL, options.precision]
        found["matmul"].append({"flops": float(child(product, options))})
    return found


@dataclass(frozen=True)
class Job:
    """One run of one side."""

    side: str
    size: str
    tokens: Path
    work: Path
    updates: int
    seed: int
    options: argparse.Namespace


def ours(job: Job) -> dict:
    folder = Path(tempfile.mkdtemp(dir=job.work)) / "run"
    warm, kind = WARM[job.size], MODELS[job.options.model]
    start = time.perf_counter()
    plmctl(
        "pretrain",
        *kind.words,
        f"data.path={job.tokens}",
        f"size={job.size}",
        "format=blocks",
        "format.crossing=true",
        "format.specials=false",
        f"format.max_length={kind.length}",
        f"model.embedding.dropout={DROPOUT}",
        f"optim.lr={LEARNING_RATE}",
        "optim.eps=1e-8",
        "optim.bias_correction=true",
        "optim.weight_decay=0.01",
        "schedule=constant",
        "schedule.warmup_steps=0",
        f"train.steps={warm + job.updates}",
        f"train.batch_size={kind.batch}",
        f"train.precision={job.options.precision}",
        f"train.compile={job.options.compile}",
        "train.log_every=1",
        "train.eval_every=0",
        "train.save_every=0",
        f"train.threads={job.options.threads}",
        f"seed={job.seed}",
        f"run.dir={folder}",
        threads=job.options.threads,
    )
    figures = read_figures(folder, kind.term, warm=warm, updates=job.updates)
    return figures | {"process_seconds": time.perf_counter() - start}


def read_figures(folder: Path, term: str, *, warm: int, updates: int) -> dict:
    """Of a run of plmctl with a line in its log for each update; the first `warm` are not timed."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = {line["step"]: line for line in lines if f"loss/{term}" in line}
    first, last = steps[warm], steps[warm + updates]
    seconds = last["seconds"] - first["seconds"]
    return {
        "tokens_per_second": (last["tokens"] - first["tokens"]) / seconds,
        "compile_seconds": first["seconds"] - warm * seconds / updates,
        "losses": [steps[step][f"loss/{term}"] for step in sorted(steps)],
        "mfu": last.get("mfu", float("nan")),
    }


def peer(job: Job) -> dict:
    layers, width = SHAPES[job.size]
    kind = MODELS[job.options.model]
    settings = {
        "model": job.options.model,
        "rows": str(rows_file(job.work, kind.length)),
        "vocab": str(job.work / "vocab.json"),
        "layers": layers,
        "width": width,
        "length": kind.length,
        "batch": kind.batch,
        "updates": job.updates,
        "warm": WARM[job.size],
        "lr": LEARNING_RATE,
        "rate": kind.asked,
        "dropout": DROPOUT,
        "bf16": job.side.endswith("bf16"),
        "seed": job.seed,
    }
    start = time.perf_counter()
    answer = child(
        [sys.executable, str(HERE / "peer_trainer.py"), json.dumps(settings)], job.options
    )
    return json.loads(answer) | {"process_seconds": time.perf_counter() - start}


def show(results: dict[str, dict[str, list[dict]]], kind: Kind) -> None:
    """The table: medians over alternations, ratios paired by alternation, spread as min..max."""
    print(
        f"\n{'size':5} {'side':18} {'tokens/s':>10} {'ours / it':>10} {'(min..max)':>14}"
        f" {'compile s':>9} {'last loss':>16}"
    )
    for size, found in results.items():
        own = [run["tokens_per_second"] for run in found["plmctl"]]
        for side in (name for name in SIDES if name in found):
            rates = [run["tokens_per_second"] for run in found[side]]
            ratios = [a / b for a, b in zip(own, rates, strict=True)]
            ends = [end_loss(run["losses"]) for run in found[side]]
            warm = statistics.median(run["compile_seconds"] for run in found[side])
            spread = statistics.stdev(ends) if len(ends) > 1 else 0.0
            print(
                f"{size:5} {side:18} {statistics.median(rates):10,.0f}"
                f" {statistics.median(ratios):10.2f} {f'{min(ratios):.2f}..{max(ratios):.2f}':>14}"
                f" {warm:9.1f} {f'{statistics.mean(ends):.3f} +- {spread:.3f}':>16}"
            )
        print(f"{size:5} {agreement(found)}")
        matmul = statistics.median(run["flops"] for run in found["matmul"])
        vocab = results_vocab(found)
        flops = flops_per_token(size, vocab, kind) * statistics.median(own)
        print(
            f"{size:5} V={vocab:,}: model {flops / 1e9:,.0f} GFLOP/s of {matmul / 1e9:,.0f} in a"
            f" matrix product of plmctl's type: {flops / matmul:.0%}"
        )


def agreement(found: dict[str, list[dict]]) -> str:
    """Do the curves end at the same loss? The gap of our mean to theirs, in units of the noise
    of such a difference.
    """
    own, theirs = (
        [end_loss(run["losses"]) for side in some if side in found for run in found[side]]
        for some in (SIDES[:1], SIDES[1:])
    )
    gap = statistics.mean(own) - statistics.mean(theirs)
    if len(own) < 2:
        return f"losses: ours - theirs {gap:+.3f} (one round: no estimate of the noise)"
    noise = (statistics.variance(own) / len(own) + statistics.variance(theirs) / len(theirs)) ** 0.5
    return f"losses: ours - theirs {gap:+.3f}, noise {noise:.3f}"


def end_loss(losses: list[float]) -> float:
    """The mean of the last fifth of the curve."""
    return statistics.mean(losses[-max(1, len(losses) // 5) :])


def results_vocab(found: dict[str, list[dict]]) -> int:
    return int(found["transformers fp32"][0]["vocab_size"])


def flops_per_token(size: str, vocab: int, kind: Kind) -> float:
    """`6 N_blocks + 12 L T d + 6 p (d^2 + V d)` for a trained token, with p = the share of
    positions that reach the head.

    GPT's head has no d^2 before its table, and half of its scores are never looked at.
    """
    layers, width = SHAPES[size]
    causal = kind.asked == 1.0
    scores = (6 if causal else 12) * layers * kind.length * width
    return (
        6 * 12 * layers * width**2
        + scores
        + 6 * kind.asked * ((0 if causal else width**2) + vocab * width)
    )


MATMUL = """
import sys, time, torch
kind = torch.bfloat16 if sys.argv[1] == "bf16" else torch.float32
a, b = torch.randn(2, 2048, 2048).to(kind)
best, end = 1e9, time.perf_counter() + 3
while time.perf_counter() < end:
    start = time.perf_counter(); a @ b; best = min(best, time.perf_counter() - start)
print(2 * 2048**3 / best)
"""


def plmctl(*words: str, threads: int | None = None) -> None:
    command = [sys.executable, "-m", "plmctl", *words]
    done = subprocess.run(
        command,
        env=environment(threads),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}")


def child(command: list[str], options: argparse.Namespace) -> str:
    """The last line that the child printed."""
    done = subprocess.run(
        command, check=True, env=environment(options.threads), stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip().splitlines()[-1]


def environment(threads: int | None) -> dict[str, str]:
    return {
        **os.environ,
        "TOKENIZERS_PARALLELISM": "false",
        **({"OMP_NUM_THREADS": str(threads)} if threads else {}),
    }


if __name__ == "__main__":
    main()
