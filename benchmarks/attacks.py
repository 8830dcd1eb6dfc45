"""Attacks side by side beside attacks of one text after the other, and beside TextAttack's.

    python benchmarks/attacks.py runs/sst2 attack_candidates=letters \
      'constraint=[changed_once,stop_words]' --peer venv/bin/python --rounds 3

All attack the same examples and must end with the same texts. One by one: the model reads the
candidates of one place of one text as a batch, with a cache for each text. Side by side, as `plmctl
attack` does it: the wishes of `window` texts are one batch, and the cache is common. TextAttack
runs in the Python of `--peer`, which has `textattack` beside plmctl (text_attack.py says with which
parts); with `--exported`, the folder of `plmctl convert runs/sst2 --to hf`, once more with its own
wrapper of models. All in turn, with one thread, `--rounds` times; the best time of each counts,
without that for reading the model and the texts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from plmctl.artifacts.loading import load_for
from plmctl.attack.together import AskedOnce
from plmctl.config import compose as config
from plmctl.core.terminal import print_table
from plmctl.use.asked_task import open_task
from plmctl.use.attacking import Victim, attack_examples

PEER = Path(__file__).with_name("text_attack.py")
Round = dict[str, Any]  # seconds: of the processor and by the clock; read: texts; rows: the ends


def attack_here(opened: tuple[Any, ...], examples: list[Any], *, alone: bool) -> Round:
    """One round of plmctl."""
    spec, loaded, precision, task = opened
    parts = spec.build_parts(loaded, precision)
    how = {"field": spec.field, "batch_size": spec.batch_size}
    rows, read = [], 0
    clock, work = time.perf_counter(), time.process_time()
    for group in [[example] for example in examples] if alone else [examples]:
        model = AskedOnce((victim := Victim(loaded, task, precision, group, **how)).score)
        rows += attack_examples(victim, model, *parts, window=spec.window)
        read += model.answered
    seconds = [time.process_time() - work, time.perf_counter() - clock]
    ends = [
        {
            "result": row["result"],
            "text": row.get("attacked", row["text"]),
            "queries": row.get("queries", 1),
        }
        for row in rows
    ]
    return {"seconds": seconds, "read": read, "rows": ends}


def attack_there(process: subprocess.Popen[str]) -> Round:
    """One round of TextAttack."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    found: Round = json.loads(process.stdout.readline())
    return found


def show(rounds: dict[str, list[Round]]) -> None:
    """A table of the best rounds, and how far the others' ends are those of plmctl."""
    best = {
        name: [min(each["seconds"][n] for each in own) for n in range(2)]
        for name, own in rounds.items()
    }
    rows = []
    for name, own in rounds.items():
        cells = [f"{seconds:.2f}" for seconds in best[name]]
        cells += [f"{own[0]['read'] / seconds:,.0f}" for seconds in best[name]]
        rows.append([name, str(own[0]["read"]), *cells])
    texts = ["texts/s, processor", "texts/s, clock"]
    print_table(["attack", "texts read", "seconds, processor", "seconds, clock", *texts], rows)
    ours, first = rounds.pop("plmctl"), best["plmctl"]
    for name, own in rounds.items():
        pairs = list(zip(ours[0]["rows"], own[0]["rows"], strict=True))
        same = [
            sum(all(a[key] == b[key] for key in keys) for a, b in pairs)
            for keys in (("result", "text"), ("queries",))
        ]
        speed = [ours[0]["read"] / first[n] / (own[0]["read"] / best[name][n]) for n in range(2)]
        print(
            f"beside {name}: {speed[0]:.1f} times as many texts a second of the processor,"
            f" {speed[1]:.1f} times by the clock; of {len(pairs)} texts {same[0]} end the same,"
            f" {same[1]} after as many queries"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("words", nargs="*", help="attack_candidates=letters constraint=[share]")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="a Python that has textattack; none: plmctl alone")
    parser.add_argument("--exported", help="the same model in Hugging Face's layout, for the peer")
    given = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    words = [f"checkpoint={given.run}", *given.words]
    spec: Any = config.compose("attack", None, words)
    loaded, precision = load_for(str(spec.checkpoint), spec.device, spec.precision, spec.plugins)
    task = open_task(loaded, spec.task, spec.provenance.keys, checkpoint=spec.checkpoint)
    examples = task.read(spec.split)[: given.rows]
    here = partial(attack_here, (spec, loaded, precision, task), examples)
    turns: dict[str, Callable[[], Round]] = {
        "plmctl": partial(here, alone=False),
        "one by one": partial(here, alone=True),
    }
    with ExitStack() as stack:
        peers: dict[str, list[str]] = {"TextAttack": []} if given.peer else {}
        if given.peer and given.exported:
            peers["TextAttack, its own wrapper"] = ["--exported", given.exported]
        for name, more in peers.items():
            command = [given.peer, str(PEER), "--rows", str(given.rows), *more, *words]
            pipe = subprocess.PIPE
            process = stack.enter_context(
                subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            )
            turns[name] = partial(attack_there, process)
        rounds: dict[str, list[Round]] = {name: [] for name in turns}
        for _ in range(given.rounds):
            for name, turn in turns.items():
                rounds[name].append(turn())
    show(rounds)


if __name__ == "__main__":
    main()
