"""Models of every backbone with the head of every kind of task, and batches of all sizes.

`python -m tests.runtime.cells` writes the table of what can be exported into its page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.core.batch import Batch
from plmctl.runtime.base import Program
from plmctl.tasks import batches, inference
from plmctl.text.tokenizer import Tokenizer
from tests.tasks.test_head_matrix import BACKBONES, EXAMPLES, MARKED, WRITE, _ready

# parts of modern_encoder and modern_decoder, on an encoder and on a decoder
MODERN = [
    "position=rotary",
    "model.embedding.segments=0",
    "model.stack.layout=saf",
    "model.stack.cells.s.adjacent=0.2",
    "model.stack.cells.f._target_=plmctl.nn.cells.glu.GLU",
    "model.stack.residual._target_=plmctl.nn.residual.PreNorm",
    "model.stack.residual.norm._target_=plmctl.nn.norm.rms_norm",
]
COMPARE = "+model.classifier={pooler:false,dense:true,bias:true,pooling:compare}"
CHANGED = {"modern_encoder": ("encoder", [*MODERN, COMPARE]), "modern_decoder": ("decoder", MODERN)}
BASES = {name: name for name in BACKBONES} | {name: base for name, (base, _) in CHANGED.items()}
CELLS = [
    (task, backbone)
    for task in (*EXAMPLES, *MARKED)
    for backbone, base in BASES.items()
    if (task != "translation" or base in WRITE)
    and (task not in MARKED or base in ("encoder", "encoder_decoder"))
]
ALONE = {"bilm"}  # computes in PyTorch alone: each different word of a batch once
WRITTEN = {("translation", "decoder"), ("translation", "encoder_decoder")}  # by CTranslate2
GRAPHS = [cell for cell in CELLS if cell[1] not in ALONE and cell[0] != "translation"]
PAGE = Path(__file__).parents[2] / "docs/commands/convert.md"
MARKS = "<!-- exports -->\n", "<!-- end -->"
NAMES = {
    "encoder": "encoder (BERT, RoBERTa, ALBERT, ELECTRA)",
    "modern_encoder": "`modern_encoder`, `modern_electra`",
    "decoder": "decoder (GPT, GPT-2)",
    "modern_decoder": "`modern_decoder`",
    "prefix": "encoder of prefixes (UniLM)",
    "encoder_decoder": "encoder-decoder (BART, T5)",
    "two_stream": "XLNet",
    "transformer_xl": "Transformer-XL",
    "bilm": "biLM (ELMo)",
}
HEADS = {
    "classification": "class of a text",
    "pair_classification": "class of a pair",
    "regression": "number",
    "tagging": "tags",
    "squad": "answer in a passage",
    "choice": "choice",
    "wic": "words in a text",
    "translation": "text that is written (`ctranslate2`)",
}


def draw_table() -> str:
    """The backbones by the kinds of answers: in both formats of graphs, or for CTranslate2."""

    def mark(task: str, backbone: str) -> str:
        exported = (task, backbone) in {*GRAPHS, *WRITTEN}
        return "yes" if exported else "1" if (task, backbone) in CELLS else ""

    rows = [[name, *(mark(task, backbone) for task in HEADS)] for backbone, name in NAMES.items()]
    rows = [["backbone", *HEADS.values()], ["---"] * (len(HEADS) + 1), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def make_tokenizer() -> Tokenizer:
    texts = ["one small cat sat here", "two dogs sat", "yes no"]
    return Tokenizer.train(
        texts, kind="word", vocab_size=64, lowercase=False, punctuation=True, min_frequency=1
    )


@dataclass(frozen=True)
class Trained:
    """A program with its rows."""

    program: Program
    rows: Any

    def batches(self) -> Iterator[Batch]:
        """Both rows, and each of them alone."""
        units = batches.BatchUnits.of(self.rows)
        last = len(units.length) - 1
        for numbers in ([0, last], [0], [last], [last, 0, last]):
            yield batches.collate(self.rows, units.rows(np.array(numbers)))


def make_cell(task: str, backbone: str, *words: str) -> Trained:
    """A task on a backbone with random weights."""
    tokenizer = make_tokenizer()
    more = ["task.marks=none", "task.label_names=[no,yes]"] if task == "relation" else []
    base, changes = CHANGED.get(backbone, (backbone, []))
    part, model, _ = _ready(task, base, tokenizer, *changes, *words, *more)
    examples = (EXAMPLES | MARKED)[task]
    rows = inference.encode_split(part, "train", examples, tokenizer).rows
    return Trained(Program(model.float().eval(), part.logits), rows)


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(MARKS[0])
    PAGE.write_text(before + MARKS[0] + draw_table() + MARKS[1] + rest.partition(MARKS[1])[2])
