"""Pretraining speed on a GPU: plmctl beside `transformers`' Trainer, eager and compiled.

    python benchmarks/pretrain_gpu.py --tokens TOKENS                       # BERT base, rows of 128
    python benchmarks/pretrain_gpu.py --tokens TOKENS --cases bert-128 bert-512 large-512
    python benchmarks/pretrain_gpu.py --tokens TOKENS --cases gpt2-1024 --sides plmctl

TOKENS: a folder that `plmctl tokenize` has made; its vocabulary counts. Both sides read the same
packed rows without padding, without dropout, in bf16 under autocast, and make updates of as many
rows by AdamW; BERT masks 15% afresh. The first updates (compiling) are left out of the rate and
their cost is stated beside it. Each run is a process of its own, and the sides take turns.

Model FLOPs of a trained token: `6 N_blocks + 12 L T d + 6 p (d d + V d)`, p = the share of
positions that reach the head, without d d for GPT; MFU is their rate over the card's dense 16-bit
peak.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peers import need
from pretrain_cpu import HERE, child, plmctl, read_figures

ROWS = ("format=blocks", "format.crossing=true", "format.specials=false")
BERT = ("roberta", "noise.token_mask.rate=0.15", *ROWS)
GPT2 = ("gpt2", *ROWS)
ELECTRA = ("electra", *ROWS)


@dataclass(frozen=True)
class Case:
    """What is trained: our settings, the shape, and rows of one pass and of an update."""

    words: tuple[str, ...]
    layers: int
    width: int
    length: int
    rows: int  # of one pass
    passes: int  # of an update
    term: str = "mlm"
    peer: str = "bert"  # "": `transformers` trains no such model with its Trainer
    peer_rows: int = 256

    @property
    def causal(self) -> bool:
        return self.term == "clm"

    def flops(self, vocab: int) -> float:
        """Of one trained token."""
        asked = 1.0 if self.causal else 0.15
        d, head = self.width, 0 if self.causal else self.width**2
        scores = 12 * self.layers * self.length * d
        return 6 * 12 * self.layers * d**2 + scores + 6 * asked * (head + vocab * d)


CASES = {
    "bert-128": Case((*BERT, "size=base"), 12, 768, 128, 512, 8),
    "bert-512": Case((*BERT, "size=base"), 12, 768, 512, 128, 8, peer_rows=64),
    "large-128": Case((*BERT, "size=large"), 24, 1024, 128, 256, 8, peer_rows=128),
    "large-512": Case((*BERT, "size=large"), 24, 1024, 512, 64, 8, peer_rows=32),
    "gpt2-1024": Case((*GPT2, "size=base"), 12, 768, 1024, 32, 16, "clm", "gpt", 16),
    "electra-128": Case((*ELECTRA, "size=base"), 12, 768, 128, 512, 8, "rtd", ""),
}
SIDES = ("plmctl", "transformers", "transformers compiled")
WARM, TIMED = 3, 12  # updates


def main() -> None:
    given = arguments()
    if set(given.sides) - {"plmctl"}:
        need("transformers", "accelerate")
    tokens = Path(given.tokens).resolve()
    with tempfile.TemporaryDirectory(prefix="plmctl-bench-") as temporary:
        work = Path(temporary)
        vocab = describe_vocab(tokens, work)
        print(f"{describe_card()}, V={vocab:,}, bf16, no dropout")
        print(f"{'case':12} {'side':22} {'tokens/s':>10} {'MFU':>6} {'ours / it':>9}", end="")
        print(f" {'first s':>8} {'loss':>6}", flush=True)
        for name in given.cases:
            run_case(name, tokens, work, vocab, given)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", required=True, help="a folder of plmctl tokenize")
    parser.add_argument("--cases", nargs="+", default=["bert-128"], choices=list(CASES))
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--rounds", type=int, default=1, help="each runs every side once")
    parser.add_argument("--timed", type=int, default=TIMED, help="updates that are timed")
    parser.add_argument("--set", nargs="+", default=[], help="further settings of plmctl's side")
    return parser.parse_args()


def describe_vocab(tokens: Path, work: Path) -> int:
    """The size of the vocabulary; the peer reads it, and the ids it needs, from `vocab.json`."""
    from plmctl.text.tokenizer import Tokenizer

    vocab = Tokenizer.load(tokens / "tokenizer").vocab
    ids = {"size": vocab.size, "mask": vocab.mask or 0, "pad": vocab.pad or 0}
    (work / "vocab.json").write_text(json.dumps(ids))
    return vocab.size


def describe_card() -> str:
    code = "import torch; print(torch.__version__, torch.cuda.get_device_name())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return f"torch {done.stdout.strip()}"


def run_case(name: str, tokens: Path, work: Path, vocab: int, given: argparse.Namespace) -> None:
    case = CASES[name]
    sides = [side for side in SIDES if side in given.sides and (case.peer or side == "plmctl")]
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(given.rounds):
        for side in sides if turn % 2 == 0 else sides[::-1]:
            run = ours if side == "plmctl" else peer
            try:
                found = run(case, side, tokens, work, given)
            except (SystemExit, subprocess.CalledProcessError) as error:
                print(f"{name:12} {side:22} failed: {str(error)[-1500:]}", flush=True)
                continue
            rates[side].append(found["tokens_per_second"])
            show(name, case, side, found, rates, vocab)
    for side in sides:
        if len(rates[side]) > 1:
            middle = statistics.median(rates[side])
            mfu = middle * case.flops(vocab) / peak()
            print(f"{name:12} {side:22} {middle:10,.0f} {mfu:6.1%} median of {len(rates[side])}")


def show(
    name: str, case: Case, side: str, found: dict, rates: dict[str, list[float]], vocab: int
) -> None:
    own = rates.get("plmctl", [])
    rate = found["tokens_per_second"]
    ratio = f"{own[-1] / rate:9.2f}" if own and side != "plmctl" else f"{'':9}"
    # a discriminator with its generator has no such count
    mfu = f"{rate * case.flops(vocab) / peak():6.1%}" if case.peer else f"{found['mfu']:6.1%}"
    print(
        f"{name:12} {side:22} {rate:10,.0f} {mfu} {ratio} {found['compile_seconds']:8.1f}"
        f" {found['losses'][-1]:6.3f}",
        flush=True,
    )


def peak() -> float:
    from plmctl.training.device.peak import find_card_peak

    return find_card_peak(describe_card(), "bf16") or float("nan")


def ours(case: Case, side: str, tokens: Path, work: Path, given: argparse.Namespace) -> dict:
    folder = Path(tempfile.mkdtemp(dir=work)) / "run"
    plmctl(
        "pretrain",
        *case.words,
        f"data.path={tokens}",
        f"format.max_length={case.length}",
        "model.embedding.dropout=0",
        "model.stack.cells.a.dropout=0",
        "model.stack.residual.dropout=0",
        "schedule=constant",
        "schedule.warmup_steps=0",
        "optim.lr=2e-4",
        f"train.steps={WARM + given.timed}",
        f"train.batch_size={case.rows * case.passes}",
        f"train.micro_batch_size={case.rows}",
        "train.device=cuda",
        "train.precision=bf16",
        "train.compile=true",  # so short a run would not pay for it
        "train.log_every=1",
        "train.eval_every=0",
        "train.save_every=0",
        f"run.dir={folder}",
        *given.set,
    )
    return read_figures(folder, case.term, warm=WARM, updates=given.timed)


def peer(case: Case, side: str, tokens: Path, work: Path, given: argparse.Namespace) -> dict:
    rows = work / f"rows-{case.length}.npy"
    if not rows.exists():
        write_rows(tokens, rows, case.length)
    settings = {
        "model": case.peer,
        "rows": str(rows),
        "vocab": str(work / "vocab.json"),
        "layers": case.layers,
        "width": case.width,
        "length": case.length,
        "batch": case.peer_rows,
        "passes": case.rows * case.passes // case.peer_rows,
        "updates": given.timed,
        "warm": WARM,
        "lr": 2e-4,
        "rate": 0.15,
        "dropout": 0.0,
        "bf16": True,
        "cpu": False,
        "workers": 8,
        "compile": side.endswith("compiled"),
        "seed": 0,
    }
    command = [sys.executable, str(HERE / "peer_trainer.py"), json.dumps(settings)]
    return json.loads(child(command, argparse.Namespace(threads=None)))


def write_rows(tokens: Path, path: Path, length: int) -> None:
    """The same packed rows for the peer."""
    from plmctl.data.shards import Shards

    ids = np.asarray(Shards.open(tokens, split="train").ids)
    count = len(ids) // length
    np.save(path, ids[: count * length].reshape(count, length).astype(np.int32))


if __name__ == "__main__":
    main()
