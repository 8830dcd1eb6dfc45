"""Rows per second of one model with what several tasks have learned beside it, all tasks in each
batch, against the same rows of one task alone.

    python benchmarks/many_tasks.py                              eight tasks with LoRA
    python benchmarks/many_tasks.py --method adapter_pfeiffer --tasks 4
    python benchmarks/many_tasks.py --size base --device cuda

BERT with random weights, rows of `--length` tokens, fp32, on a CPU one thread. One task runs as
`plmctl eval` does, several as `load_adapters(...).predict` does, in alternating rounds; the ratio
is that of the medians. That both give a task the same logits is checked first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping

import numpy as np
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.build import plain
from plmctl.config.compose import compose
from plmctl.config.recipes import load, part_files
from plmctl.core.batch import Rows, Seq
from plmctl.heads.classify import Classify
from plmctl.models.base import Model
from plmctl.nn.peft.routed import Routes, graft
from plmctl.tasks import inference
from plmctl.tasks.classification import Classification
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.together import Member, ask
from plmctl.training.checkpoint import load_tensors, tensors_of

VOCAB = 8192
METHODS = ("lora", "ia3", "adapter", "adapter_pfeiffer", "adapter_parallel", "prefix")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", default="lora", choices=METHODS)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--size", default="small")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    device, tasks = torch.device(given.device), range(given.tasks)
    models = [build(given.method, given.size, seed).to(device).eval() for seed in tasks]
    for model in models[1:]:  # one base
        load_tensors(model, plain_tensors(models[0]))
    task = Classification(
        name="x",
        reader=Table(splits={}),
        columns={},
        max_length=given.length,
        metrics=["accuracy"],
        label_names=["a", "b"],
    )
    rows = make_rows(given.rows, given.length, seed=0)
    of = np.array_split(np.arange(given.rows), given.tasks)
    shares = {number: cut(rows, places) for number, places in enumerate(of)}
    shared, routes = build(None, given.size, 0).to(device).eval(), Routes()
    load_tensors(shared, plain_tensors(models[0]))
    graft(shared.backbone, [model.backbone for model in models], routes)
    members: list[Member] = [
        (task, Model(backbone=shared.backbone, heads=dict(model.heads.items()))) for model in models
    ]

    def alone(number: int, own: Rows) -> np.ndarray:
        logits, _ = inference.run(models[number], task, own, batch_size=given.batch, device=device)
        return logits["class"]

    with torch.no_grad():
        found = ask(members, shares, routes, batch_size=given.batch)
        for number, own in shares.items():
            np.testing.assert_allclose(found[number]["class"], alone(number, own), atol=1e-4)
        one, several = [], []
        for _ in range(given.rounds):
            begin = time.perf_counter()
            alone(0, rows)
            middle = time.perf_counter()
            ask(members, shares, routes, batch_size=given.batch)
            one.append(middle - begin)
            several.append(time.perf_counter() - middle)
    speeds = [given.rows / statistics.median(times) for times in (one, several)]
    print(f"{given.method}, {given.size}, {given.length} tokens, batches of {given.batch}")
    print(f"one task: {speeds[0]:.1f} rows/s; {given.tasks} tasks: {speeds[1]:.1f} rows/s;", end="")
    print(f" ratio {speeds[1] / speeds[0]:.2f}")


def build(method: str | None, size: str, seed: int) -> Model:
    """BERT with a classifier, and with a method whose weights are as if trained."""
    config = plain(compose("pretrain", "bert", [f"size={size}"]))
    config["peft"] = None if method is None else {method: load(part_files("peft")[method])}
    model = build_model(config, vocab_size=VOCAB, seed=seed, heads={})
    model.heads["class"] = Classify(width=model.backbone.width, num_classes=2, dropout=0.0)
    generator = torch.Generator().manual_seed(seed)
    for own in model.methods:
        for name in own.trains(model.backbone):
            weight = model.backbone.get_parameter(name).data
            weight.add_(0.02 * torch.randn(weight.shape, generator=generator))
    return model


def plain_tensors(model: Model) -> Mapping[str, torch.Tensor]:
    """The weights of a model that its methods do not train."""
    trained = {name for own in model.methods for name in own.trains(model.backbone)}
    return {
        name: tensor
        for name, tensor in tensors_of(model).items()
        if name.startswith("backbone.") and name.removeprefix("backbone.") not in trained
    }


def make_rows(count: int, length: int, seed: int) -> Rows:
    ids = np.random.default_rng(seed).integers(5, VOCAB, (count, length))
    places = np.stack([np.arange(count), np.zeros(count, dtype=np.int64)], 1)
    seqs = {"text": Seq(ids, np.full(count, length))}
    return Rows(np.arange(count), seqs, anchors=places)


def cut(rows: Rows, places: np.ndarray) -> Rows:
    seq = rows.seqs["text"]
    anchors = np.stack([np.arange(len(places)), np.zeros(len(places), dtype=np.int64)], 1)
    return Rows(
        rows.key[places], {"text": Seq(seq.ids[places], seq.length[places])}, anchors=anchors
    )


if __name__ == "__main__":
    main()
