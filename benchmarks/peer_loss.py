"""The other side of time_to_loss.py: `transformers`' Trainer with its defaults for so many minutes,
then its loss on hidden tokens; settings are JSON in argument 1.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import need
from torch.nn import functional as F

need("transformers", "accelerate")
from peer_trainer import Rows, bert, stand_in  # noqa: E402
from transformers import (  # noqa: E402
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class Stop(TrainerCallback):
    """Ends the training after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.limit, self.start, self.seconds = seconds, time.perf_counter(), 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seconds = time.perf_counter() - self.start
        control.should_training_stop = self.seconds >= self.limit


def main(settings: dict[str, Any]) -> None:
    torch.set_num_threads(settings["threads"])
    set_seed(0)
    folder = Path(settings["folder"])
    vocab = json.loads((folder / "vocab.json").read_text())
    model = bert(settings, vocab, settings["width"])
    stop = Stop(60 * settings["minutes"])
    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(
            output_dir=out,
            bf16=settings["bf16"],
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        collator = DataCollatorForLanguageModeling(stand_in(vocab))
        rows = Rows(str(folder / "rows.npy"))
        trainer = Trainer(model, arguments, collator, rows, callbacks=[stop])
        trainer.train()
    figures = {
        "loss": measure(model, folder, settings, vocab["pad"]),
        "seconds": stop.seconds,
        "updates": trainer.state.global_step,
    }
    print(json.dumps(figures))


@torch.inference_mode()
def measure(model: Any, folder: Path, settings: dict[str, Any], pad: int) -> float:
    """The mean cross-entropy of the hidden tokens of the held-out rows."""
    model.eval()
    held_out = np.load(folder / "held_out.npz")
    total, count = 0.0, 0
    for start in range(0, len(held_out["ids"]), 32):
        ids, labels = (
            torch.from_numpy(held_out[key][start : start + 32]).long() for key in ("ids", "labels")
        )
        logits = model(input_ids=ids, attention_mask=(ids != pad).long()).logits
        known = labels != settings["ignored"]
        total += F.cross_entropy(logits[known], labels[known], reduction="sum").item()
        count += int(known.sum())
    return total / count


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
