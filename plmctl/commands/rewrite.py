"""`plmctl data rewrite`: a training set whose targets a teacher wrote (Kim and Rush, 2016), for a student to be trained on.

`out` has train.jsonl and the other splits of the task as they are, under the names of the task's columns: `task.path=<out>`
trains on it, and so does `data.path=<out>/train.jsonl data.fields=[source,target]` in pretraining.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from plmctl.commands import made, scoring
from plmctl.commands.generate import said
from plmctl.commands.prompts import AHEAD, Reader, alike
from plmctl.config.build import build, plain
from plmctl.distill.sequence import Nearest, Pick, likeliest
from plmctl.errors import ConfigError
from plmctl.generation.decode import generate
from plmctl.generation.search import Hypothesis
from plmctl.loading import Loaded, load
from plmctl.tasks.base import Example
from plmctl.tasks.generation import Generation
from plmctl.training.distributed import device_of

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.config.compose import Flags


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """Write `out` and say what is in it."""
    device, out = device_of(cfg.device, "device"), made.new_folder(cfg.out)
    search = build(cfg.search, {}, flags.plugins, path="search")
    if cfg.pick == "nearest" and search.count < 2:
        raise ConfigError("search.count", search.count, "at least 2: pick=nearest chooses among them", fix="search.count=5")
    loaded = load(cfg.checkpoint, plugins=flags.plugins)
    task, reader = _task(cfg, flags, loaded), _reader(cfg, flags, loaded)
    pick: Pick = Nearest(tokenize=task.tokenize, lowercase=task.lowercase) if cfg.pick == "nearest" else likeliest
    examples = task.read("train")
    task.fit_labels(examples)
    names = _names(task)
    loaded.model.to(device)
    limit = cfg.max_new or (reader.task or task).max_target
    job = {
        "made by": "plmctl data rewrite", "model": made.identity(loaded.source), "pick": cfg.pick, "max_new": limit,
        "search": plain(cfg.search), "columns": names,
        "train": made.digest("".join(_line(example, names) for example in examples)),
    }  # fmt: skip
    counted = {"as the reference": 0, "cut at max_new": 0, "empty, so the reference": 0}

    def of(some: Sequence[Example], first: int) -> Iterator[str]:
        prompts = [reader(str(example.fields["source"]), first + n) for n, example in enumerate(some)]
        texts: dict[int, list[Hypothesis]] = {}
        for chosen in alike(prompts, cfg.batch_size):
            batch = reader.batch([prompts[n] for n in chosen]).to(device)
            found = generate(
                loaded.model, batch, vocab=loaded.vocab, search=search, head=reader.head, max_new=limit,
                keys=[prompts[n].number for n in chosen],
            )  # fmt: skip
            texts |= dict(zip(chosen, found, strict=True))
        for n, example in enumerate(some):
            words = [said(reader, prompts[n], text.ids).strip() for text in texts[n]]
            yield _line(replace(example, label=(_chosen(pick, words, texts[n], example, counted),)), names)

    made.write(
        out, "train.jsonl", job, examples, of=of, together=AHEAD * cfg.batch_size, others=_others(task, names), state=counted,
        what="sources",
    )  # fmt: skip
    _report(cfg, task, len(examples), counted, names, as_json=flags.json)
    return 0


def _task(cfg: DictConfig, flags: Flags, loaded: Loaded) -> Generation:
    """The task that is asked for, else the one the teacher was fine-tuned on; ConfigError where it writes no texts."""
    own = loaded.config.get("task") or {}
    if cfg.task is None and not own:
        raise ConfigError("task", ..., "must be given: whose sources are they?", fix="task=translation task.path=<folder>")
    node = {**(own if cfg.task is None else plain(cfg.task)), "metrics": []}
    task = build(node, scoring.reading(loaded.config, flags.plugins), flags.plugins, path="task")
    if not isinstance(task, Generation):
        raise ConfigError("task", node.get("name"), "a task whose targets are texts: translation, summarization, seq2seq")
    return task


def _reader(cfg: DictConfig, flags: Flags, loaded: Loaded) -> Reader:
    """How the teacher reads a source; ConfigError for a model that does not write one text for another."""
    reader = Reader.of(loaded, "train", flags.plugins)
    if reader.kind == "source" or (reader.kind == "text" and reader.task is not None):
        return reader
    what = "an encoder, which fills masks" if reader.kind == "fill" else "a decoder that was fine-tuned on no task that writes"
    fix = "checkpoint=<an encoder-decoder, or the run of a finetune on translation, summarization, seq2seq>"
    raise ConfigError("checkpoint", cfg.checkpoint, f"a teacher that writes one text for another; this is {what}", fix=fix)


def _names(task: Generation) -> dict[str, str]:
    """What the columns are called: as in the task, where they have names."""
    return {role: name if isinstance(name := task.columns[role], str) else role for role in ("source", "target")}


def _line(example: Example, names: dict[str, str]) -> str:
    references = list(example.label or ())
    target = {names["target"]: references[0] if len(references) == 1 else references} if references else {}
    return json.dumps({names["source"]: example.fields["source"], **target}, ensure_ascii=False) + "\n"


def _others(task: Generation, names: dict[str, str]) -> dict[str, Path | str]:
    """The other splits, for which nothing is written."""
    if isinstance(task.path, str) and Path(task.path).expanduser().is_file():
        return {}  # one file, which is whatever split is asked for
    there: Iterable[str] = (split for split in task.reader.splits if split != "train" and task.has(split))
    return {f"{split}.jsonl": "".join(_line(example, names) for example in task.read(split)) for split in there}


def _chosen(pick: Pick, words: Sequence[str], texts: Sequence[Hypothesis], example: Example, counted: dict[str, int]) -> str:
    """What the student is to write: the teacher's text or, where it wrote nothing, the reference."""
    references = [str(text) for text in example.label or ()]
    text = pick(words, references)
    counted["empty, so the reference"] += text is None
    counted["as the reference"] += text in references
    counted["cut at max_new"] += text is not None and not texts[list(words).index(text)].finished
    return references[0] if text is None else text


def _report(
    cfg: DictConfig, task: Generation, count: int, counted: dict[str, int], names: dict[str, str], *, as_json: bool
) -> None:  # fmt: skip
    if as_json:
        print(json.dumps({"out": cfg.out, "sources": count, **counted}))
        return
    told = ", ".join(f"{value:,} {what}" for what, value in counted.items() if value)
    columns = f" task.columns.source={names['source']} task.columns.target={names['target']}"
    print(f"{cfg.out}: targets of {count:,} sources" + (f"; {told}" if told else ""))
    print(f"next: plmctl finetune task={task.name} task.path={cfg.out}{columns} ...")
