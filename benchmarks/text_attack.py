"""TextAttack's side of attacks.py, which starts this script in an environment that has `textattack`
beside plmctl: the same model, the same texts, and TextAttack's own parts.

plmctl reads the model, or with `--exported` TextAttack's `HuggingFaceModelWrapper`, which pads each
text to the length of the tokenizer, 32 texts at a time.

Each line of standard input begins a round; a line of JSON on standard output ends it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from plmctl.artifacts.loading import load_for
from plmctl.attack.base import AttackSearch, Constraint, WordCandidates
from plmctl.attack.beam import AttackBeam
from plmctl.attack.constraints import ChangedOnce, KeepStopWords
from plmctl.attack.neighbours import NearWords
from plmctl.attack.word_text import WordText
from plmctl.config import compose as config
from plmctl.tasks import batches
from plmctl.tasks.record import Example
from plmctl.use.asked_task import open_task
from plmctl.use.attacking import DIGITS

Score = Callable[[list[str]], np.ndarray | torch.Tensor]  # texts -> [n, K]
SHIPPED_BATCH = 32  # `model_batch_size` of TextAttack, where nothing is set


@dataclass(frozen=True)
class Near:
    """TextFooler's candidates: the `count` nearest words whose cosine is `least` or more."""

    words: Sequence[str]
    table: np.ndarray  # [N, W], each of length 1
    count: int
    least: float


def make_attack(
    score: Score,
    words: Near | Callable[[str], list[str]],
    *,
    stop_words: Collection[str],
    width: int | None,
    batch_size: int,
) -> Any:
    """TextAttack's attack.

    Args:
        score: the model.
        words: what replaces a word.
        stop_words: stay; and each word is changed once.
        width: of its beam (1: its greedy search); None: words by importance, each left out.
        batch_size: texts that the model reads at once.
    """
    from textattack import Attack, search_methods, transformations
    from textattack.constraints.pre_transformation import RepeatModification, StopwordModification
    from textattack.constraints.semantics import WordEmbeddingDistance
    from textattack.goal_functions import UntargetedClassification
    from textattack.models.wrappers import ModelWrapper
    from textattack.shared import WordEmbedding

    class ScoreWrapper(ModelWrapper):
        model = None

        def __call__(self, texts: list[str]) -> torch.Tensor:
            return torch.as_tensor(score(texts))

    class ListedSwap(transformations.WordSwap):
        def _get_replacement_words(self, word: str) -> list[str]:
            assert not isinstance(words, Near)
            return words(word)

    constraints = [RepeatModification(), StopwordModification(stopwords=stop_words)]
    if isinstance(words, Near):
        number = {word: n for n, word in enumerate(words.words)}
        alike = words.table @ words.table.T
        np.fill_diagonal(alike, np.inf)  # a word is the first of its own list
        nearest = np.argsort(-alike, axis=1, kind="stable")[:, : words.count + 1]
        embedding = WordEmbedding(words.table, number, dict(enumerate(words.words)), nearest)
        swap = transformations.WordSwapEmbedding(words.count, embedding)
        constraints.append(WordEmbeddingDistance(embedding, min_cos_sim=words.least))
    else:
        swap = ListedSwap()
    goal = UntargetedClassification(ScoreWrapper(), model_batch_size=batch_size)
    search = (
        search_methods.GreedyWordSwapWIR("delete")
        if width is None
        else search_methods.BeamSearch(width)
    )
    return Attack(goal, constraints, swap, search)


def attack_texts(attack: Any, texts: Sequence[str], golds: Sequence[int]) -> list[dict[str, Any]]:
    """What becomes of each text; TextAttack counts the text itself as a query."""
    names = {"Successful": "fooled", "Failed": "held", "Skipped": "wrong before"}
    rows = []
    for text, gold in zip(texts, golds, strict=True):
        end = attack.attack(text, gold)
        last = end.perturbed_result
        result = names[type(end).__name__.removesuffix("AttackResult")]
        rows.append(
            {"result": result, "text": last.attacked_text.text, "queries": last.num_queries}
        )
    return rows


def translate(
    candidates: WordCandidates, constraints: Sequence[Constraint], search: AttackSearch
) -> dict[str, Any]:
    """Our parts as arguments of `make_attack`, but for its model."""
    if {type(each) for each in constraints} != {ChangedOnce, KeepStopWords}:
        raise SystemExit("text_attack.py compares with constraint=[changed_once,stop_words]")
    (stop,) = (each for each in constraints if isinstance(each, KeepStopWords))
    words: Any
    if isinstance(candidates, NearWords):
        table = candidates.table
        words = Near(table.words, table.unit, candidates.count, candidates.least)
    else:

        def words(word: str) -> list[str]:
            return candidates.propose([(WordText(("", word, ""), (1,)), 0)])[0]

    width = search.width if isinstance(search, AttackBeam) else None
    return {"words": words, "stop_words": stop.words, "width": width}


def wrap_exported(folder: str) -> Score:
    """TextAttack's own wrapper of a model in Hugging Face's layout; its answers are logits."""
    from textattack.models.wrappers import HuggingFaceModelWrapper
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    wrapper: Score = HuggingFaceModelWrapper(model, AutoTokenizer.from_pretrained(folder))
    return wrapper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--exported", help="the folder of `plmctl convert ... --to hf`")
    parser.add_argument("words", nargs="*", help="those of plmctl attack")
    given = parser.parse_args()
    torch.set_num_threads(1)
    spec: Any = config.compose("attack", None, given.words)
    loaded, precision = load_for(str(spec.checkpoint), spec.device, spec.precision, spec.plugins)
    task = open_task(loaded, spec.task, spec.provenance.keys, checkpoint=spec.checkpoint)
    examples = task.read(spec.split)[: given.rows]
    texts = [str(example.fields[spec.field]) for example in examples]
    golds = [task.names.index(str(example.label)) for example in examples]

    def score_here(some: list[str]) -> np.ndarray:
        rows = task.encode([Example("", {"text": text}) for text in some], loaded.tokenizer)
        with torch.no_grad(), precision.autocast():
            batch = batches.collate(rows, np.arange(len(some))).to(precision.device)
            logits = task.logits(loaded.model, batch)["class"].float().cpu().numpy()
        return np.round(task.measure_probabilities({"class": logits}, rows), DIGITS)

    ask: Score = score_here
    batch_size = spec.batch_size
    if given.exported:
        ask, batch_size = wrap_exported(given.exported), SHIPPED_BATCH
    read = 0

    def score(some: list[str]) -> np.ndarray | torch.Tensor:
        nonlocal read
        read += len(some)
        return ask(some)

    for _ in sys.stdin:
        parts = translate(*spec.build_parts(loaded, precision))
        attack = make_attack(score, **parts, batch_size=batch_size)
        read = 0
        clock, work = time.perf_counter(), time.process_time()
        rows = attack_texts(attack, texts, golds)
        seconds = [time.process_time() - work, time.perf_counter() - clock]
        print(json.dumps({"seconds": seconds, "read": read, "rows": rows}), flush=True)


if __name__ == "__main__":
    main()
