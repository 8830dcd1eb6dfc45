"""How long a masked language model takes to a loss: plmctl beside `transformers`' Trainer with its
defaults.

    python benchmarks/time_to_loss.py tokens --minutes 30
    # settings of plmctl's run, and the precision of the other
    python benchmarks/time_to_loss.py tokens --minutes 30 --bf16 -- bert optim.lr=1e-3

`tokens` is a folder that `plmctl tokenize` wrote, with held-out text. Trainer trains
BertForMaskedLM of the same layers and width on rows of the same length for so many minutes, with
its default rate, schedule, batch and epochs. Then plmctl trains, for a tenth of that, and the
script says when its held-out loss was below Trainer's last. Both losses are means over the same
hidden tokens of the same held-out rows, both runs are processes of their own with the same threads,
one after the other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from peers import need

HERE = Path(__file__).resolve().parent
EVALUATIONS = 20  # of plmctl's run: its time is known to a twentieth


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tokens", type=Path, help="a folder of plmctl tokenize")
    parser.add_argument("--minutes", type=float, default=30.0, help="of Trainer")
    parser.add_argument("--ours", type=float, help="minutes of plmctl; default: a tenth")
    parser.add_argument("--bf16", action="store_true", help="the precision of Trainer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size", default="mini")
    parser.add_argument("--length", type=int, default=64, help="tokens of a row")
    parser.add_argument("words", nargs="*", help="of plmctl pretrain; default: modern_encoder")
    given = parser.parse_args()
    need("transformers", "accelerate")
    words = [
        *(given.words or ["modern_encoder"]),
        f"size={given.size}",
        f"format.max_length={given.length}",
        f"data.path={given.tokens}",
        f"train.threads={given.threads}",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = write_rows(folder, words)
        settings |= {"minutes": given.minutes, "bf16": given.bf16, "threads": given.threads}
        script = [sys.executable, str(HERE / "peer_loss.py"), json.dumps(settings)]
        done = subprocess.run(script, check=True, stdout=subprocess.PIPE, text=True)
        theirs = json.loads(done.stdout.splitlines()[-1])
        print("transformers", json.dumps(theirs), flush=True)
        curve = train_ours(folder / "run", words, given.ours or given.minutes / 10)
    below = [(seconds, loss) for seconds, loss in curve if loss <= theirs["loss"]]
    print("plmctl", json.dumps([[round(s, 1), round(loss, 3)] for s, loss in curve]))
    if not below:
        print(f"plmctl did not reach {theirs['loss']:.3f}")
        return
    seconds, loss = below[0]
    ratio = theirs["seconds"] / seconds
    print(
        f"{loss:.3f} after {seconds:.0f} s, {theirs['loss']:.3f} after {theirs['seconds']:.0f} s:"
        f" at least {ratio:.1f} times sooner"
    )


def write_rows(folder: Path, words: list[str]) -> dict[str, Any]:
    """Rows of plmctl's corpus, and hidden tokens of its held-out rows, for the other side; what
    that side has to know.
    """
    from plmctl.config.compose import compose
    from plmctl.config.texts import Feed, Texts
    from plmctl.core.batch import IGNORE
    from plmctl.inputs.corpus import open_corpus
    from plmctl.inputs.loaders import BatchFields, open_held_out
    from plmctl.training.processes.world import World

    spec = compose("pretrain", words[0], words[1:])
    corpus = open_corpus(Texts.of(spec))
    vocab, length = corpus.vocab, spec.format["max_length"]
    (shards,) = (part for parts in corpus.train.values() for part in parts.values())
    body = length - 2
    ids = np.asarray(shards.ids[: len(shards.ids) // body * body]).reshape(-1, body)
    ends = (np.full((len(ids), 1), token, ids.dtype) for token in (vocab.cls, vocab.sep))
    np.save(folder / "rows.npy", np.hstack([next(ends), ids, next(ends)]))
    fields = BatchFields(frozenset({"text", "targets.mlm"}))
    (batches,) = open_held_out(Feed.of(spec), corpus, World(), fields).values()
    held_out: dict[str, list[np.ndarray]] = {"ids": [], "labels": []}
    for batch in batches:
        target, text = batch.targets["mlm"], batch.text.ids
        labels = np.full(text.numel(), IGNORE)
        known = target.ids != IGNORE
        labels[target.index[known].numpy()] = target.ids[known].numpy()
        for key, values in (("ids", text.numpy()), ("labels", labels.reshape(text.shape))):
            wide = np.full((len(text), length), vocab.pad if key == "ids" else IGNORE)
            wide[:, : values.shape[1]] = values
            held_out[key].append(wide)
    np.savez(folder / "held_out.npz", **{key: np.vstack(rows) for key, rows in held_out.items()})
    roles = {"size": vocab.size, "mask": vocab.mask, "pad": vocab.pad}
    (folder / "vocab.json").write_text(json.dumps(roles))
    return {
        "folder": str(folder),
        "layers": spec.size["num_layers"],
        "width": spec.size["width"],
        "length": length,
        "dropout": 0.1,
        "ignored": IGNORE,
    }


def train_ours(run: Path, words: list[str], minutes: float) -> list[tuple[float, float]]:
    """[(seconds of training, held-out loss)] of a run of so many minutes."""
    short = [f"train.minutes={minutes}", "train.log_every=1", "train.save_every=0"]
    command = [sys.executable, "-m", "plmctl", "pretrain", *words, *short]
    pace = _updates(command, run.with_name("pace"))
    every = max(1, round(pace * minutes * 60 / EVALUATIONS))
    said = subprocess.run(
        [*command, f"train.eval_every={every}", f"run.dir={run}"], stdout=subprocess.DEVNULL
    )
    said.check_returncode()
    seconds, curve = 0.0, []
    for line in (run / "metrics.jsonl").open():
        record = json.loads(line)
        seconds = record.get("seconds", seconds)
        if "valid/loss/mlm" in record:
            curve.append((seconds, record["valid/loss/mlm"]))
    return curve


def _updates(command: list[str], run: Path) -> float:
    """Updates a second, from a run of six seconds."""
    short = [*command, "train.minutes=0.1", "train.eval_every=0", f"run.dir={run}"]
    subprocess.run(short, check=True, stdout=subprocess.DEVNULL)
    records = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    last = [record for record in records if "seconds" in record][-1]
    return float(last["step"] / max(last["seconds"], 1.0))


if __name__ == "__main__":
    main()
