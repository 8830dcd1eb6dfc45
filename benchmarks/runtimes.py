"""Rows per second of a classifier, a tagger, a reader of spans or vectors of texts, from text to
answer, by each runtime, against `transformers` and against the libraries used alone.

    python benchmarks/runtimes.py --task sst2 --path glue/SST-2 --size mini
    python benchmarks/runtimes.py --task qnli --path glue/QNLI --size base --rows 128 --batch 1
    python benchmarks/runtimes.py --task conll2003 --path conll --size mini
    python benchmarks/runtimes.py --task squad --path squad/v1.1 --size mini --rows 200
    python benchmarks/runtimes.py --task sst2 --path glue/SST-2 --size mini --vectors

BERT with the weights of one update, the same in each engine, reads the same real texts of dev in
rounds that alternate; a ratio is that of the medians. One thread unless `--threads`. Each engine
tokenizes as well. `--batch 1` is a stream: one text after the other, in the order of the file.
Passages are those of one window; an answer of `transformers` is the likeliest start and the
likeliest end behind it. `--vectors`: means of the last states.

  transformers          eager, fp32: batches in the order of the file, which is random
  transformers, sorted  the same with the longest texts first
  ... alone             the library itself with the graph that `transformers` gives, longest first
  torch ... auto        `plmctl.load(..., runtime=...).predict(texts)`
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from peers import need

from plmctl.core.machine import describe_cpu

Texts = Sequence[tuple[str, ...]]
Engine = Callable[[Texts], object]
Start = Callable[[], Engine]
ROLES = ("text", "text2", "question", "context")  # the texts of an example
LENGTHS = {"QuestionAnswering": 384}  # most tokens of a row; of other tasks 128
WINDOW = 180  # most words of a passage


def main() -> None:
    need("transformers")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="sst2")
    parser.add_argument("--path", required=True, help="the folder of the task")
    parser.add_argument("--size", default="mini")
    parser.add_argument("--vocab", type=int, default=8000, help="tokens of the vocabulary")
    parser.add_argument("--rows", type=int, default=872, help="at most, of dev")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--vectors", action="store_true", help="means of states, not answers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], help="parts of the names of engines")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    import torch

    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        texts, own, other = prepare(given, folder)
        engines = {**list_peers(other, given, texts), **list_own(own, given)}
        chosen = {
            name: start
            for name, start in engines.items()
            if not given.only or any(part in name for part in given.only)
        }
        compare(chosen, texts, given)


def prepare(given: argparse.Namespace, folder: Path) -> tuple[Texts, Path, Path]:
    """(texts of dev, the run, the same weights in the layout of `transformers`)."""
    import transformers

    import plmctl
    from plmctl.artifacts.convert import convert
    from plmctl.use.asked_task import open_task

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)

    run, other = folder / "run", folder / "hf"
    words = {"task": given.task, "task.path": given.path, "checkpoint": None, "model": "encoder"}
    words |= {"tokenizer": "wordpiece", "tokenizer.vocab_size": given.vocab, "size": given.size}
    words |= {"train.steps": 1, "train.epochs": None, "train.batch_size": 2}
    words |= {"train.precision": "fp32", "run.dir": str(run)}
    with contextlib.redirect_stderr(io.StringIO()):
        plmctl.train("finetune", words)
        convert(run, other, to="hf")
        examples = open_task(plmctl.load(run), None, (), checkpoint=run).read("dev")
    texts = [
        tuple(str(example.fields[role]) for role in ROLES if role in example.fields)
        or (" ".join(example.fields["words"]),)
        for example in examples
        if len(str(example.fields.get("context", "")).split()) <= WINDOW
    ]
    return texts[: given.rows], run, other


def cut(texts: Texts, given: argparse.Namespace) -> Iterator[list[Any]]:
    """Pieces of the texts as they arrive: single ones in a stream, otherwise all together."""
    listed: list[Any] = [each[0] if len(each) == 1 else each for each in texts]
    size = 1 if given.batch == 1 else len(listed)
    yield from (listed[n : n + size] for n in range(0, len(listed), size))


def list_own(run: Path, given: argparse.Namespace) -> dict[str, Start]:
    """The runtimes of plmctl."""
    from plmctl.core.machine import cpu_multiplies_bf16

    ways: dict[str, dict[str, Any]] = {"torch": {}}
    if cpu_multiplies_bf16():
        ways["torch, bf16"] = {"precision": "bf16"}
    for runtime in ("onnx", "openvino"):
        ways[runtime] = {"runtime": runtime}
        ways[f"{runtime}, int8"] = {"runtime": runtime, "runtime_options": {"int8": True}}
    ways["auto"] = {"runtime": "auto"}

    def start(way: dict[str, Any]) -> Engine:
        import plmctl

        model = plmctl.load(run, **way)
        answer: Callable[..., object] = model.embed if given.vectors else model.predict
        return lambda texts: [answer(piece, batch_size=given.batch) for piece in cut(texts, given)]

    return {f"plmctl {name}": partial(start, way) for name, way in ways.items()}


class Peer:
    """A model of `transformers` and its tokenizer, which answer batches of texts.

    Args:
        folder: The folder of both.
        given: The settings of the run.
        ordered: Whether the longest texts come first.
    """

    def __init__(self, folder: Path, given: argparse.Namespace, *, ordered: bool) -> None:
        import transformers

        name = transformers.AutoConfig.from_pretrained(folder).architectures[0]
        kind = f"For{name.partition('For')[2]}"
        self.finish: Callable[[dict[str, Any], Sequence[Any], Any], object] = give_logits
        if given.vectors:
            kind, self.finish = "", average
        elif kind == "ForQuestionAnswering":
            self.finish = cut_spans
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = getattr(transformers, f"AutoModel{kind}").from_pretrained(folder).eval()
        self.length = LENGTHS.get(kind.removeprefix("For"), 128)
        self.batch, self.ordered = given.batch, ordered and given.batch > 1
        self.compute: Callable[[dict[str, Any]], Sequence[Any]] = self._ask

    def __call__(self, texts: Texts) -> object:
        found = []
        if self.ordered:
            texts = sorted(texts, key=lambda each: -sum(map(len, each)))
        for start in range(0, len(texts), self.batch):
            columns = map(list, zip(*texts[start : start + self.batch], strict=True))
            batch = self.encode(*columns)
            found.append(self.finish(batch, self.compute(batch), columns))
        return found

    def encode(self, *columns: list[str]) -> dict[str, Any]:
        """A batch in tensors."""
        how: Any = {"padding": True, "truncation": True, "max_length": self.length}
        return dict(self.tokenizer(*columns, return_tensors="pt", **how))

    def _ask(self, batch: dict[str, Any]) -> Sequence[Any]:
        import torch

        with torch.inference_mode():
            return [own.numpy() for own in self.model(**batch).to_tuple()]


def give_logits(batch: dict[str, Any], outputs: Sequence[Any], columns: Any) -> object:
    """The logits as they are."""
    return outputs[0]


def average(batch: dict[str, Any], outputs: Sequence[Any], columns: Any) -> object:
    """The mean of the states of each text."""
    real = batch["attention_mask"].numpy()[..., None]
    return (outputs[0] * real).sum(1) / real.sum(1)


def cut_spans(batch: dict[str, Any], outputs: Sequence[Any], columns: Any) -> object:
    """The part of each passage from the likeliest start to the likeliest end behind it."""
    spans = []
    for row, (start, end) in enumerate(zip(*outputs[:2], strict=True)):
        passage = batch["token_type_ids"][row].numpy() * batch["attention_mask"][row].numpy()
        start = start - 1e9 * (1 - passage)
        first = int(start.argmax())
        last = first + int((end - 1e9 * (1 - passage))[first:].argmax())
        ids = batch["input_ids"][row]
        spans.append((first, last, ids[first : last + 1].tolist()))
    return spans


def start_openvino(int8: bool, folder: Path, given: argparse.Namespace, texts: Texts) -> Engine:
    """OpenVINO with the graph of `transformers`, and NNCF with what it does by default."""
    import openvino as ov

    peer = Peer(folder, given, ordered=True)
    usual = [
        peer.encode(*map(list, zip(*texts[n : n + 8], strict=True)))
        for n in range(0, min(64, len(texts)), 8)
    ]
    peer.model.config.return_dict = False
    graph = ov.convert_model(peer.model, example_input=usual[0])
    if int8:
        import nncf

        arrays = [{key: value.numpy() for key, value in batch.items()} for batch in usual]
        kind = nncf.ModelType.TRANSFORMER
        graph = nncf.quantize(graph, nncf.Dataset(arrays), model_type=kind)
    settings = {"INFERENCE_NUM_THREADS": given.threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = ov.compile_model(graph, "CPU", settings)
    peer.compute = lambda batch: [
        *compiled({key: value.numpy() for key, value in batch.items()}).values()
    ]
    return peer


def start_onnx(int8: bool, folder: Path, given: argparse.Namespace, texts: Texts) -> Engine:
    """ONNX Runtime with the graph of `transformers`, and its dynamic quantization."""
    import onnxruntime as ort
    import torch
    from onnxruntime import quantization

    peer = Peer(folder, given, ordered=True)
    batch = peer.encode(*map(list, zip(*texts[:8], strict=True)))
    peer.model.config.return_dict = False
    file = folder / "peer.onnx"
    sizes = {key: {0: "rows", 1: "tokens"} for key in batch}
    how: Any = {"input_names": [*batch], "dynamic_shapes": sizes, "external_data": False}
    torch.onnx.export(peer.model, (), str(file), kwargs=batch, opset_version=20, **how)
    if int8:
        how = {"weight_type": quantization.QuantType.QInt8, "per_channel": True}
        how |= {"op_types_to_quantize": ["MatMul", "Gather"]}
        quantization.quantize_dynamic(file, folder / "peer8.onnx", **how)
        file = folder / "peer8.onnx"
    options = ort.SessionOptions()
    options.intra_op_num_threads = given.threads
    session = ort.InferenceSession(str(file), options)
    named = {own.name for own in session.get_inputs()}
    peer.compute = lambda batch: session.run(
        None, {key: value.numpy() for key, value in batch.items() if key in named}
    )
    return peer


def list_peers(folder: Path, given: argparse.Namespace, texts: Texts) -> dict[str, Start]:
    """`transformers`, and other libraries without plmctl."""
    alone = {"OpenVINO": start_openvino, "ONNX Runtime": start_onnx}
    return {
        "transformers": lambda: Peer(folder, given, ordered=False),
        "transformers, sorted": lambda: Peer(folder, given, ordered=True),
        **{
            f"{name}{', int8' * int8} alone": partial(start, int8, folder, given, texts)
            for name, start in alone.items()
            for int8 in (False, True)
        },
    }


def compare(starts: dict[str, Start], texts: Texts, given: argparse.Namespace) -> None:
    """Measure the engines in turns, and print a table."""
    engines: dict[str, Engine] = {}
    for name, start in starts.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                engines[name] = start()
                engines[name](texts)  # the first pass prepares shapes and memory
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)
            engines.pop(name, None)
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(given.rounds):
        for name, engine in engines.items():
            begin = time.perf_counter()
            engine(texts)
            times[name].append(time.perf_counter() - begin)
    middle = {name: statistics.median(own) for name, own in times.items()}
    base = next(iter(middle.values()))
    lengths = statistics.mean(sum(len(text.split()) for text in each) for each in texts)
    print(f"{describe_cpu()}; {given.threads} thread; {given.task}, {len(texts)} rows of", end=" ")
    print(f"{lengths:.1f} words; {given.size}; batch {given.batch}")
    print(f"{'':28}{'rows/s':>9}{'ms/row':>9}{'best':>9}{'ratio':>8}")
    for name, seconds in middle.items():
        rate, best = len(texts) / seconds, len(texts) / min(times[name])
        ratio = base / seconds
        print(f"{name:28}{rate:9,.0f}{1e3 / rate:9.2f}{best:9,.0f}{ratio:8.2f}", flush=True)


if __name__ == "__main__":
    main()
