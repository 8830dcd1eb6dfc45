"""`plmctl data mine`: texts that look right for a question and are not, from which encoders learn
(Karpukhin et al., 2020, arXiv:2004.04906, sec. 3.2).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from plmctl.artifacts.loading import load
from plmctl.artifacts.model_facts import reading
from plmctl.config.build import build
from plmctl.config.linked import Mine
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted, tell
from plmctl.probes.ranking import search_corpus
from plmctl.storage.atomic import open_folder, write_text
from plmctl.storage.resumable import new_folder
from plmctl.tasks.ranking import RankingTask
from plmctl.tasks.record import Example
from plmctl.tasks.search import Ranked, search_words
from plmctl.tasks.task import as_task
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of

# {id: text}, questions, how many -> a ranking for each question
Search = Callable[[dict[str, str], Sequence[str], int], Sequence[Ranked]]
SPLITS = ("train", "dev")


def mine(spec: Mine) -> int:
    """Write `out`: train.jsonl, and dev.jsonl where there is one, tables of query, positive and
    negatives.
    """
    out = new_folder(spec.out)
    task, search = _open(spec)
    splits: dict[str, dict[str, int]] = {}
    with open_folder(out) as folder:
        for split in filter(task.has, SPLITS):
            examples, corpus = task.read(split), task.read_corpus(split)
            answers = max(len(e.fields["positives"]) for e in examples)
            queries = [str(e.fields["query"]) for e in examples]
            found = search(corpus, queries, spec.negatives + spec.skipped + answers)
            rows = [
                {
                    "id": e.id,
                    "query": query,
                    "positive": list(e.fields["positives"].values()),
                    "negatives": choose_negatives(
                        e, own, corpus, count=spec.negatives, skipped=spec.skipped
                    ),
                }
                for e, query, own in zip(examples, queries, found, strict=True)
            ]
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            write_text(folder / f"{split}.jsonl", "".join(lines))
            negatives = sum(len(row["negatives"]) for row in rows)
            splits[split] = {"questions": len(rows), "negatives": negatives}
    if spec.provenance.json:
        tell(json.dumps({"out": spec.out, "splits": splits}))
        return 0
    for split, counts in splits.items():
        asked = counted(counts["questions"], "question")
        tell(f"{out / split}.jsonl: {asked} with {counted(counts['negatives'], 'negative')}")
    words = f"{spell_setting('task.path', out)} task.negatives={spec.negatives}"
    tell(f"next: plmctl finetune task=bi_encoder {words} checkpoint=<a run>")
    return 0


def choose_negatives(
    example: Example, ranked: Ranked, corpus: Mapping[str, str], *, count: int, skipped: int
) -> list[str]:
    """The best `count` texts that are not known to answer the question, after the first `skipped`
    of these, which may answer it and nobody has said so.
    """
    right, texts = set(example.fields["positives"].values()), list(corpus.values())
    wrong = dict.fromkeys(texts[n] for n in ranked.numbers if texts[n] not in right)
    return list(wrong)[skipped : skipped + count]


def _open(spec: Mine) -> tuple[RankingTask, Search]:
    """The task whose questions are asked, and what finds texts for them."""
    if spec.checkpoint is None:
        if spec.task is None:
            fix = "task=bi_encoder task.path=<its files>"
            raise ConfigError("task", ..., "whose questions are they?", fix=fix)
        task = build(spec.task, {"pooling": "first"}, spec.plugins, path="task")
        return _check(task, spec), lambda corpus, queries, top: list(
            search_words(queries, list(corpus.values()), list(corpus), top=top)
        )
    loaded = load(spec.checkpoint, plugins=spec.plugins)
    node, given = loaded.own_task(), reading(loaded.config, spec.plugins)
    model = build(node, given, spec.plugins, path="task") if node else None
    if model is None or not model.ranks or model.first is not None:
        allowed = "null: BM25, or a run of plmctl finetune task=bi_encoder"
        raise ConfigError("checkpoint", spec.checkpoint, allowed, fix="leave it out")
    precision = choose("fp32", device_of(spec.device, "device"))
    loaded.model.to(precision.device)
    task = model if spec.task is None else build(spec.task, given, spec.plugins, path="task")
    return _check(task, spec), lambda corpus, queries, top: search_corpus(
        loaded, model, queries, corpus, top=top, batch_size=spec.batch_size, precision=precision
    )


def _check(task: Any, spec: Mine) -> RankingTask:
    known = as_task(task)
    if known is None or not known.ranks:
        name = (spec.task or {}).get("name", "...")
        raise ConfigError("task", name, "a task of ranking", fix="task=bi_encoder")
    return cast(RankingTask, known)
