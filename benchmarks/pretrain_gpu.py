"""Pretraining speed on a GPU: plmctl beside `transformers`' Trainer, eager and compiled.

    make bench-gpu                                         # all in 12 minutes, the dearest first
    python benchmarks/pretrain_gpu.py --corpus 10M.txt     # with 5 minutes on a text of yours
    python benchmarks/pretrain_gpu.py --only bert-512 large-512 --minutes 60
    python benchmarks/pretrain_gpu.py --smoke              # every case on a CPU, in a tiny size

Both sides read the same packed rows without padding, without dropout, in bf16 under autocast, and
make updates of as many rows by AdamW; BERT masks 15% afresh. The first updates (compiling) are left
out of the rate and their cost is stated beside it. Each run is a process of its own with a limit of
its own; what fails, or finds no time left, is listed with its reason. A result is written as it
comes, to a file of JSON lines and a table beside it. What is compiled stays in --work: a second run
begins warm.

--tokens: a folder of `plmctl tokenize` with 100 sentinels; default: made-up words, WordPiece of
30,522. Model FLOPs of a trained token: `6 N_blocks + 12 L T d + 6 p (d d + V d)`, p = the share of
positions that reach the head, without d d for GPT; for other models as plmctl counts them. MFU is
their rate over the card's dense 16-bit peak.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pretrain_cpu import HERE, made_up_text, read_figures

ROWS = ("format=blocks", "format.crossing=true", "format.specials=false")
BERT = ("roberta", "noise.token_mask.rate=0.15", *ROWS)
PLAIN = ("model.embedding.dropout=0", "model.stack.residual.dropout=0")
NO_DROPOUT = (*PLAIN, "model.stack.cells.a.dropout=0")
T5 = ("t5", "format=blocks", "model.encoder.embedding.dropout=0")  # all others follow it


@dataclass(frozen=True)
class Case:
    """What is trained: our settings, the shape, and rows of one pass and of an update."""

    words: tuple[str, ...]
    size: str
    layers: int
    width: int
    length: int
    rows: int  # of one pass
    passes: int  # of an update
    term: str = "mlm"
    peer: str = ""  # "": `transformers` trains no such model with its Trainer, or another one
    peer_rows: int = 256

    def flops(self, vocab: int) -> float:
        """Of one trained token."""
        causal = self.term == "clm"
        asked, d = (1.0 if causal else 0.15), self.width
        head, scores = (0 if causal else d**2), 12 * self.layers * self.length * d
        return 6 * 12 * self.layers * d**2 + scores + 6 * asked * (head + vocab * d)

    def tiny(self) -> Case:
        """The same in a size that a CPU trains in seconds."""
        return replace(self, size="tiny", layers=2, width=128, length=32, rows=2, passes=2,
                       peer_rows=2)  # fmt: skip


BERT_WORDS, GPT2_WORDS = (*BERT, *NO_DROPOUT), ("gpt2", *ROWS, *NO_DROPOUT)
CASES = {
    "bert-128": Case(BERT_WORDS, "base", 12, 768, 128, 512, 8, peer="bert"),
    "bert-512": Case(BERT_WORDS, "base", 12, 768, 512, 128, 8, peer="bert", peer_rows=64),
    "large-128": Case(BERT_WORDS, "large", 24, 1024, 128, 256, 8, peer="bert", peer_rows=128),
    "large-512": Case(BERT_WORDS, "large", 24, 1024, 512, 64, 8, peer="bert", peer_rows=32),
    "gpt2-1024": Case(GPT2_WORDS, "base", 12, 768, 1024, 32, 16, "clm", "gpt", 16),
    "modern-512": Case(("modern_encoder",), "base", 12, 768, 512, 128, 8),
    "electra-128": Case(("electra", *ROWS, *NO_DROPOUT), "base", 12, 768, 128, 512, 8, "rtd"),
    "t5-512": Case(T5, "base", 12, 768, 512, 64, 8, "seq2seq"),
    "mini-128": Case(BERT_WORDS, "mini", 4, 256, 128, 2048, 2, peer="bert", peer_rows=1024),
}
OURS, EAGER, COMPILED, SHARDED = "plmctl", "transformers", "transformers compiled", "plmctl sharded"
RESUME, CORPUS = "resume", "corpus"  # cases that are no rate
# in the order of their value: where time ends, the last ones are left out
ORDER = (
    *(("bert-128", OURS), ("bert-512", OURS), ("gpt2-1024", OURS), ("large-512", OURS)),
    *(("bert-128", COMPILED), (CORPUS, OURS), ("modern-512", OURS), ("large-128", OURS)),
    *(("electra-128", OURS), ("t5-512", OURS), ("mini-128", OURS), (RESUME, OURS)),
    *(("bert-128", SHARDED), ("gpt2-1024", COMPILED), ("bert-128", EAGER)),
    *(("bert-512", COMPILED), ("large-512", COMPILED)),
)
WARM, TIMED = 3, 8  # updates
WARM_PEER = 6  # compiled, it compiles again until all counts of labels are variables
LIMIT, LEAST = 150, 5.0  # seconds of a run, at most, and in which one begins
CORPUS_MINUTES = 5.0
# torch's engine for divided weights, alone: without it, one process may not ask for it
ALONE = """
import os, sys, torch, torch.distributed as dist
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29511")
dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
import plmctl.training.processes.parallel as parallel
parallel.check_parallel = lambda *given, **named: None
from plmctl.__main__ import main
sys.exit(main())
"""


class Skipped(Exception):
    """The reason why a run has no result."""


@dataclass(frozen=True)
class Bench:
    """Everything that the runs share."""

    work: Path
    out: Path
    smoke: bool
    minutes: float
    timed: int
    extra: tuple[str, ...]
    corpus: Path | None
    given_tokens: Path | None
    begun: float

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return 60 * self.minutes - (time.perf_counter() - self.begun)

    @property
    def limit(self) -> float:
        """Seconds that the next run may take."""
        return min(LIMIT, self.left)

    def run(self, command: Sequence[str], seconds: float, **variables: str) -> str:
        """The output of a process on both streams, in at most so many seconds; Skipped where it
        fails or takes longer.
        """
        if seconds < LEAST:
            raise Skipped("no time left")
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(self.work / "compiled"),
                  "TRITON_CACHE_DIR": str(self.work / "triton"),
                  "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
        log = self.work / "last.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **caches, **variables},
            )  # fmt: skip
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise Skipped(f"longer than {seconds:.0f} seconds") from None
            finally:  # with the workers that it has started
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said = log.read_text(errors="replace").strip()
        if code:
            raise Skipped(f"exit code {code}: {' | '.join(said.splitlines()[-3:])[-400:]}")
        return said

    def plmctl(
        self, *words: str, seconds: float = 0.0, alone: bool = False, **variables: str
    ) -> str:
        """A command of plmctl."""
        start = ["-c", ALONE] if alone else ["-m", "plmctl"]
        return self.run([sys.executable, *start, *words], seconds or self.limit, **variables)

    @property
    def tokens(self) -> Path:
        """The tokens of all cases, made at the first call."""
        if self.given_tokens:
            return self.given_tokens
        folder = self.work / "tokens"
        if not (folder / "tokenizer").exists():
            shutil.rmtree(folder, ignore_errors=True)
            words, vocab = (6_000, 400) if self.smoke else (6_000_000, 30_522)
            text = made_up_text(self.work / "text.txt", words, kinds=max(2000, words // 100))
            wordpiece = ("tokenizer=wordpiece", f"tokenizer.vocab_size={vocab}")
            place = (f"data.path={text}", f"out={folder}")
            self.plmctl("tokenize", *wordpiece, "tokenizer.sentinels=100", *place, seconds=300)
        return folder

    @property
    def vocab(self) -> dict[str, int]:
        """The size of the vocabulary, and the ids that the peer needs."""
        from plmctl.text.tokenizer import Tokenizer

        vocab = Tokenizer.load(self.tokens / "tokenizer").vocab
        return {"size": vocab.size, "mask": vocab.mask or 0, "pad": vocab.pad or 0}

    def words(self, case: Case) -> tuple[str, ...]:
        """Our settings of a case."""
        cpu = ("train.device=cpu", "train.precision=fp32", "train.compile=false")
        # so short a run would not pay for compiling
        card = ("train.device=cuda", "train.precision=bf16", "train.compile=true")
        return (
            *("pretrain", *case.words, f"size={case.size}", f"data.path={self.tokens}"),
            *(f"format.max_length={case.length}", "schedule=constant", "schedule.warmup_steps=0"),
            *("optim.lr=2e-4", f"train.batch_size={case.rows * case.passes}"),
            *(f"train.micro_batch_size={case.rows}", "train.log_every=1", "train.eval_every=0"),
            *("train.save_every=0", *(cpu if self.smoke else card), *self.extra),
        )

    def folder(self) -> Path:
        """A run directory that is not there."""
        folder = self.work / "run"
        shutil.rmtree(folder, ignore_errors=True)
        return folder


def main() -> None:
    bench, only = arguments()
    bench.work.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        bench.out.unlink()
    print(f"{describe_card(bench.smoke)}, at most {bench.minutes:g} minutes", flush=True)
    done: list[dict[str, Any]] = []
    for name, side in ORDER:
        if only and name not in only:
            continue
        started = time.perf_counter()
        try:
            found = run_one(bench, name, side)
        except Skipped as reason:
            found = {"skipped": str(reason)}
        spent = {"seconds": round(time.perf_counter() - started, 1)}
        done.append({"case": name, "side": side, **found, **spent})
        with bench.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[-1]) + "\n")
        bench.out.with_suffix(".md").write_text(draw(done), encoding="utf-8")
        print(draw(done).splitlines()[-1], flush=True)


def arguments() -> tuple[Bench, list[str]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(dict.fromkeys(name for name, _ in ORDER))
    parser.add_argument("--only", nargs="+", default=[], choices=names, metavar="CASE",
                        help=", ".join(names))  # fmt: skip
    parser.add_argument("--tokens", help="a folder of plmctl tokenize")
    parser.add_argument("--corpus", help="a text for five minutes of a modern encoder")
    parser.add_argument("--minutes", type=float, default=12.0, help="the end of all runs")
    parser.add_argument("--timed", type=int, default=TIMED, help="updates that are timed")
    parser.add_argument("--out", default="bench-gpu.jsonl", help="JSON lines; a table lies beside")
    parser.add_argument("--work", default=".bench-gpu", help="tokens and compiled kernels")
    parser.add_argument("--smoke", action="store_true", help="tiny, on a CPU")
    parser.add_argument("--set", nargs="+", default=[], help="further settings of plmctl's side")
    given = parser.parse_args()
    bench = Bench(
        work=Path(given.work).resolve(),
        out=Path(given.out).resolve(),
        smoke=given.smoke,
        minutes=given.minutes,
        timed=1 if given.smoke else given.timed,
        extra=tuple(given.set),
        corpus=Path(given.corpus).resolve() if given.corpus else None,
        given_tokens=Path(given.tokens).resolve() if given.tokens else None,
        begun=time.perf_counter(),
    )
    return bench, given.only


def describe_card(smoke: bool) -> str:
    name = "'CPU'" if smoke else "torch.cuda.get_device_name()"
    code = f"import torch; print('torch', torch.__version__, {name})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        sys.exit("pretrain_gpu.py needs a GPU\n  fix: python benchmarks/pretrain_gpu.py --smoke")
    return done.stdout.strip()


def run_one(bench: Bench, name: str, side: str) -> dict[str, Any]:
    """The result of one line of `ORDER`."""
    if name in (RESUME, CORPUS):
        return {RESUME: check_resume, CORPUS: train_on_corpus}[name](bench)
    case = CASES[name].tiny() if bench.smoke else CASES[name]
    found = (ours if side in (OURS, SHARDED) else peer)(bench, case, side)
    rate, tops = found["tokens_per_second"], peak(bench)
    counted = rate * case.flops(bench.vocab["size"]) / tops if case.peer else found["mfu"]
    keys = ("tokens_per_second", "compile_seconds", "graphs_while_timed")
    kept = {key: round(found[key], 1) for key in keys if key in found}
    mfu = {} if math.isnan(counted) else {"mfu": round(counted, 4)}
    return {**kept, **mfu, "loss": round(found["losses"][-1], 4)}


def peak(bench: Bench) -> float:
    from plmctl.training.device.peak import find_card_peak

    return find_card_peak(describe_card(bench.smoke), "bf16") or float("nan")


def ours(bench: Bench, case: Case, side: str) -> dict[str, Any]:
    folder, steps = bench.folder(), WARM + bench.timed
    alone = side == SHARDED
    words = (*bench.words(case), *(("train.parallel=sharded",) if alone else ()))
    bench.plmctl(*words, f"train.steps={steps}", f"run.dir={folder}", alone=alone)
    return read_figures(folder, case.term, warm=WARM, updates=bench.timed)


def peer(bench: Bench, case: Case, side: str) -> dict[str, Any]:
    rows = bench.work / f"rows-{case.length}.npy"
    write_rows(bench.tokens, rows, case.length)
    vocab = bench.work / "vocab.json"
    vocab.write_text(json.dumps(bench.vocab))
    settings = {
        "model": case.peer,
        "rows": str(rows),
        "vocab": str(vocab),
        "layers": case.layers,
        "width": case.width,
        "length": case.length,
        "batch": case.peer_rows,
        "passes": case.rows * case.passes // case.peer_rows,
        "updates": bench.timed,
        "warm": WARM_PEER if side == COMPILED else WARM,
        "lr": 2e-4,
        "rate": 0.15,
        "dropout": 0.0,
        "bf16": not bench.smoke,
        "cpu": bench.smoke,
        "workers": 0 if bench.smoke else 8,
        "compile": side == COMPILED and not bench.smoke,
        "seed": 0,
    }
    command = [sys.executable, str(HERE / "peer_trainer.py"), json.dumps(settings)]
    found: dict[str, Any] = json.loads(bench.run(command, bench.limit).splitlines()[-1])
    return found


def write_rows(tokens: Path, path: Path, length: int) -> None:
    """The same packed rows for the peer."""
    from plmctl.data.shards import Shards

    ids = np.asarray(Shards.open(tokens, split="train").ids)
    count = len(ids) // length
    np.save(path, ids[: count * length].reshape(count, length).astype(np.int32))


def check_resume(bench: Bench) -> dict[str, Any]:
    """Whether a run that was interrupted has the bits of one that was not, by deterministic
    kernels.
    """
    case = replace(CASES["bert-128"], rows=64, passes=1)
    case = case.tiny() if bench.smoke else case
    exact = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    words = (*bench.words(case), "train.deterministic=true", "train.compile=false")
    found = []
    for steps in ((4,), (2, 4)):
        folder = bench.folder()
        first, *later = steps
        bench.plmctl(*words, f"train.steps={first}", f"run.dir={folder}", **exact)
        for more in later:
            again = ("pretrain", "--resume", f"run.dir={folder}", f"train.steps={more}")
            bench.plmctl(*again, **exact)
        found.append((folder / "checkpoints" / "step-4" / "model.safetensors").read_bytes())
    return {"bit_exact": found[0] == found[1]}


def train_on_corpus(bench: Bench) -> dict[str, Any]:
    """Five minutes of a modern encoder on a text, and its loss on held-out text."""
    if bench.corpus is None:
        raise Skipped("no --corpus")
    folder, minutes = bench.folder(), 0.05 if bench.smoke else CORPUS_MINUTES
    seconds = min(bench.left, 60 * minutes + LIMIT)
    words = ("pretrain", "modern_encoder", f"data.path={bench.corpus}", f"train.minutes={minutes}")
    bench.plmctl(*words, *bench.extra, f"run.dir={folder}", seconds=seconds)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (*_, last) = [line for line in lines if "valid/loss/mlm" in line]
    (*_, trained) = [line for line in lines if "tokens" in line]
    return {"loss": last["valid/loss/mlm"], "tokens": trained["tokens"], "minutes": minutes}


COLUMNS: dict[str, Callable[[Any], str]] = {
    "tokens_per_second": "{:,.0f}".format,
    "mfu": "{:.1%}".format,
    "compile_seconds": "{:.0f}".format,
    "loss": "{:.3f}".format,
    "seconds": "{:.0f}".format,
}


def draw(done: Sequence[dict[str, Any]]) -> str:
    """The table of all results so far; a further result of a line, or its reason, ends it."""
    lines = [
        "| case | side | tokens/s | MFU | first s | loss | s | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for each in done:
        cells = [show(each[name]) if name in each else "" for name, show in COLUMNS.items()]
        rest = {k: v for k, v in each.items() if k not in (*COLUMNS, "case", "side", "skipped")}
        words = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in rest.items())
        lines.append(
            f"| {' | '.join([each['case'], each['side'], *cells, each.get('skipped', words)])} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
