"""Attacks side by side beside attacks of one text after the other: `python benchmarks/attacks.py
<a fine-tuned run>`.

Both attack the same examples and must end with the same texts. One after the other, as TextAttack
does it: the model reads the candidates of one place of one text as a batch, with a cache for each
text. Side by side: the wishes of `--window` texts are one batch, and the cache is common. Parts in
turn, `--rounds` times; the best time of each counts.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from plmctl.attack.together import AskedOnce
from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.run.attacking import Victim, attack_examples, build_parts
from plmctl.run.evaluation.asked_task import choose_task, describe_model
from plmctl.run.weights.loading import load_for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("words", nargs="*", help="candidates=letters constraint=[share]")
    given = parser.parse_args()
    torch.set_num_threads(1)
    words = [f"checkpoint={given.run}", *given.words]
    spec: Any = config.compose("attack", None, words)
    loaded, precision = load_for(spec)
    task = build(choose_task(spec, loaded), describe_model(loaded, ()), path="task")
    examples = task.read(spec.split)[: given.rows]
    best: dict[str, float] = {}
    ends: dict[str, list[Any]] = {}
    asked = 0
    for _ in range(given.rounds):
        for name in ("one by one", "side by side"):
            rows: list[Any] = []
            started, asked = time.process_time(), 0
            alone = name == "one by one"
            groups = [[example] for example in examples] if alone else [examples]
            parts = build_parts(spec, loaded, precision)
            for group in groups:
                how = {"field": spec.field, "batch_size": spec.batch_size}
                victim = Victim(loaded, task, precision, group, **how)
                model = AskedOnce(victim.score)
                rows += attack_examples(victim, model, *parts, window=given.window)
                asked += model.answered
            seconds = time.process_time() - started
            best[name] = min(seconds, best.get(name, seconds))
            ends[name] = [row.get("attacked") for row in rows]
    same = sum(a == b for a, b in zip(ends["one by one"], ends["side by side"], strict=True))
    for name, seconds in best.items():
        print(f"{name:14} {seconds:8.2f} s  {asked / seconds:8.1f} texts a second")
    ratio = best["one by one"] / best["side by side"]
    print(f"{ratio:.1f} times as fast; {same} of {len(examples)} attacked texts are the same")


if __name__ == "__main__":
    main()
