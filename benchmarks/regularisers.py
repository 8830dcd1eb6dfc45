"""What an update costs with each regulariser: `python benchmarks/regularisers.py`.

One model, the same micro-batches, an update of each arm in turn (clip and optimizer included); the
median of the processor time, and what it is of a plain update.

    python benchmarks/regularisers.py --size mini --batch 32 --length 32 --rounds 15
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.runs.parents import build_task
from plmctl.runs.regularising import build_regulariser
from plmctl.runs.resolve import resolve_finetuning
from plmctl.runs.side_training import encode_splits
from plmctl.tasks.batches import Batches
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.carried_states import CarriedStates
from plmctl.training.device.precision import choose
from plmctl.training.optim.groups import split_groups
from plmctl.training.processes.world import World
from plmctl.training.strategy.single import Single
from plmctl.training.update import Update

ARMS = {
    "plain": ["regulariser=none"],
    "fgm": ["regulariser=fgm"],
    "fgm, each second update": ["regulariser=fgm", "regulariser.every=2"],
    "pgd, 3 steps": ["regulariser=pgd"],
    "freelb, 2 steps": ["regulariser=freelb", "regulariser.steps=2"],
    "freelb, 3 steps": ["regulariser=freelb"],
    "freelb, 3 steps, each second update": ["regulariser=freelb", "regulariser.every=2"],
    "smart": ["regulariser=smart"],
    "alum": ["regulariser=alum"],
}


class Arm:
    """One training of a model, an update at a time."""

    def __init__(self, folder: Path, words: list[str], batch: int) -> None:
        asked = config.compose("finetune", None, words).asked(dry_run=True)
        spec, task, _ = resolve_finetuning(asked)
        task = build_task(spec)
        file = folder / "tokenizer"
        if not file.exists():
            texts = (folder / "train.tsv").read_text(encoding="utf-8").splitlines()
            learned = build(spec.tokenizer, plugins=(), path="tokenizer")
            Tokenizer.learn(texts, learned).save(file)
        tokenizer = Tokenizer.load(file)
        data = encode_splits(task, tokenizer)
        model = build_model(spec, vocab_size=tokenizer.vocab.size, vocab=tokenizer.vocab, seed=0)
        world = World()
        optimizer = build(spec.optim, path="optim")(parameters=list(model.named_parameters()))
        split_groups(optimizer, list(model.named_parameters()), lambda name: ())
        strategy = Single(world)
        strategy.train(list(model.parameters()))
        self.batches = Batches(
            data["train"].rows, batch_size=batch, micro_batch_size=None, seed=0, world=1, rank=0
        )
        regulariser = build_regulariser(spec, model, task)
        self.update = Update(
            model=model,
            objective=task,
            optimizer=optimizer,
            precision=choose("fp32", world.device),
            strategy=strategy,
            run=task,
            memory=CarriedStates(model.backbone, world.device),
            clip=1.0,
            regulariser=regulariser,
        )
        self.every = regulariser.every if regulariser else 1
        self.step = 0
        model.train()

    def run(self) -> float:
        """Seconds of processor time of an update, in the mean of those that differ."""
        started = time.process_time()
        for _ in range(self.every):
            micro_batches = next(self.batches)
            counts = self.update.count(micro_batches, {})
            norm, _ = self.update.gradient(micro_batches, counts, self.step)
            self.update.apply([1.0] * len(self.update.optimizer.param_groups), float(norm))
            self.update.end()
            self.step += 1
        return (time.process_time() - started) / self.every


def write_texts(folder: Path, length: int) -> None:
    """Sentences of made words, of about so many tokens."""
    draws = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draws.choices(letters, k=4)) for _ in range(20_000)]
    for name, count in (("train", 2000), ("dev", 8)):
        lines = ["text\tlabel"]
        for n in range(count):
            lines.append(" ".join(draws.choices(words, k=length)) + f"\t{'ab'[n % 2]}")
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="mini")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--arms", nargs="*", default=list(ARMS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_texts(folder, given.length)
        words = ["task=classification", f"task.path={folder}", "checkpoint=null"]
        words += [f"size={given.size}", f"task.max_length={given.length}", "train.precision=fp32"]
        words += [f"tokenizer.vocab_size={given.vocab}", "tokenizer=wordpiece"]
        arms = {
            name: Arm(folder, [*words, *ARMS[name], f"run.dir={folder / 'run'}"], given.batch)
            for name in given.arms
        }
        times: dict[str, list[float]] = {name: [] for name in arms}
        for number in range(given.rounds + 2):
            for name, arm in arms.items():
                seconds = arm.run()
                if number >= 2:
                    times[name].append(seconds)
    plain = statistics.median(times["plain"]) if "plain" in times else float("nan")
    print(f"{'regulariser':38} ms an update  of a plain one")
    for name, own in times.items():
        median = statistics.median(own)
        print(f"{name:38} {1000 * median:12.1f}  {median / plain:14.2f}")


if __name__ == "__main__":
    main()
