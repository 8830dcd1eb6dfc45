"""`plmctl data rewrite`: a training set whose targets a teacher wrote (Kim and Rush, 2016), for a
student to be trained on.

`out` has train.jsonl and the other splits of the task as they are, under the names of the task's
columns: `task.path=<out>` trains on it, and so does `data.path=<out>/train.jsonl
data.fields=[source,target]` in pretraining.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import OmegaConf

from plmctl.commands.generate import said
from plmctl.commands.prompts import AHEAD, Reader, alike
from plmctl.core.errors import ConfigError
from plmctl.core.terminal import remark, tell
from plmctl.data.tokenizing import cache_folder
from plmctl.distill.sequence import Nearest, Pick, likeliest
from plmctl.generation.decode import generate
from plmctl.generation.search import Hypothesis
from plmctl.run.build import build, plain
from plmctl.run.identity import identity
from plmctl.run.loading import Loaded, load
from plmctl.run.model_facts import reading
from plmctl.run.plugins import confirm, named, option
from plmctl.storage.resumable import new_folder, text_hash, write_folder
from plmctl.tasks import files
from plmctl.tasks.base import Example
from plmctl.tasks.generation import Generation
from plmctl.training.distributed import device_of

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.run.compose import Flags


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """Write `out` and say what is in it."""
    out = new_folder(cfg.out)
    work = Rewriting(cfg, flags)
    work.write(out)
    _report(cfg, work, flags)
    return 0


def by_teacher(cfg: DictConfig, flags: Flags) -> None:
    """Put the texts of `teacher` in place of the targets that the fine-tuning `cfg` would read.

    They are written once, into a folder of the cache called by all that decides them. Nothing where
    that is done already.
    """
    if not (told := (cfg.get("distill") or {}).get("rewrite")):
        return
    own = {
        **plain(told),
        "checkpoint": cfg.teacher,
        "task": plain(cfg.task),
        "device": cfg.train.device,
    }
    work = Rewriting(OmegaConf.create(own), flags)
    decides = {
        **work.job,
        **{name: text_hash(str(text)) for name, text in _others(work.task, work.names).items()},
    }
    out = (
        cache_folder(cfg.data.cache_dir)
        / f"by-teacher-{text_hash(json.dumps(decides, sort_keys=True))[:16]}"
    )
    if not out.exists():
        work.write(out)
    (remark if flags.json else tell)(f"targets by {cfg.teacher}: {out}")
    cfg.task.path, cfg.task.columns = str(out), {**work.names, "id": None}
    cfg.distill.rewrite = None


class Rewriting:
    """A teacher, the examples of a task and how it writes them; `job`: all that decides the
    bytes of `train.jsonl`.
    """

    def __init__(self, cfg: DictConfig, flags: Flags) -> None:
        self.device, self.batch_size = device_of(cfg.device, "device"), cfg.batch_size
        self.search = build(cfg.search, {}, flags.plugins, path="search")
        if cfg.pick == "nearest" and self.search.count < 2:
            raise ConfigError(
                "search.count",
                self.search.count,
                "at least 2: pick=nearest chooses among them",
                fix="search.count=5",
            )
        self.loaded = load(cfg.checkpoint, plugins=flags.plugins)
        self.task, self.reader = _task(cfg, flags, self.loaded), _reader(cfg, flags, self.loaded)
        near = cfg.pick == "nearest"
        self.pick: Pick = (
            Nearest(tokenize=self.task.tokenize, lowercase=self.task.lowercase)
            if near
            else likeliest
        )
        self.examples = self.task.read("train")
        self.task.fit_labels(self.examples)
        self.names = _names(self.task)
        self.limit = cfg.max_new or (self.reader.task or self.task).max_target
        self.counted = {"as the reference": 0, "cut at max_new": 0, "empty, so the reference": 0}
        self.job = {
            "made by": "plmctl data rewrite",
            "model": identity(self.loaded.source),
            "pick": cfg.pick,
            "max_new": self.limit,
            "search": plain(cfg.search),
            "columns": self.names,
            "train": text_hash("".join(_line(example, self.names) for example in self.examples)),
        }

    def write(self, out: Path) -> None:
        """The folder `out`, which appears when it is complete."""
        self.loaded.model.to(self.device)
        write_folder(
            out,
            "train.jsonl",
            self.job,
            self.examples,
            of=self._of,
            together=AHEAD * self.batch_size,
            others=_others(self.task, self.names),
            state=self.counted,
            what="sources",
        )

    def _of(self, some: Sequence[Example], first: int) -> Iterator[str]:
        reader = self.reader
        prompts = [
            reader(str(example.fields["source"]), first + n) for n, example in enumerate(some)
        ]
        texts: dict[int, list[Hypothesis]] = {}
        for chosen in alike(prompts, self.batch_size):
            batch = reader.batch([prompts[n] for n in chosen]).to(self.device)
            found = generate(
                self.loaded.model,
                batch,
                vocab=self.loaded.vocab,
                search=self.search,
                head=reader.head,
                max_new=self.limit,
                keys=[prompts[n].number for n in chosen],
            )
            texts |= dict(zip(chosen, found, strict=True))
        for n, example in enumerate(some):
            words = [said(reader, prompts[n], text.ids).strip() for text in texts[n]]
            yield _line(
                replace(
                    example, label=(_chosen(self.pick, words, texts[n], example, self.counted),)
                ),
                self.names,
            )


def _task(cfg: DictConfig, flags: Flags, loaded: Loaded) -> Generation:
    """The task that is asked for, else the one the teacher was fine-tuned on; ConfigError where
    it writes no texts.
    """
    own = loaded.config.get("task") or {}
    confirm(named(own), flags.plugins, of=cfg.checkpoint)
    if cfg.task is None and not own:
        raise ConfigError(
            "task",
            ...,
            "must be given: whose sources are they?",
            fix="task=translation task.path=<folder>",
        )
    node = {**(own if cfg.task is None else plain(cfg.task)), "metrics": []}
    task = build(node, reading(loaded.config, flags.plugins), flags.plugins, path="task")
    if not isinstance(task, Generation):
        raise ConfigError(
            "task",
            node.get("name"),
            "a task whose targets are texts: translation, summarization, seq2seq",
        )
    return task


def _reader(cfg: DictConfig, flags: Flags, loaded: Loaded) -> Reader:
    """How the teacher reads a source; ConfigError for a model that does not write one text for
    another.
    """
    reader = Reader.of(loaded, "train", flags.plugins)
    if reader.kind == "source" or (reader.kind == "text" and reader.task is not None):
        return reader
    what = (
        "an encoder, which fills masks"
        if reader.kind == "fill"
        else "a decoder that was fine-tuned on no task that writes"
    )
    fix = (
        "checkpoint=<an encoder-decoder,"
        " or the run of a finetune on translation, summarization, seq2seq>"
    )
    raise ConfigError(
        "checkpoint",
        cfg.checkpoint,
        f"a teacher that writes one text for another; this is {what}",
        fix=fix,
    )


def _names(task: Generation) -> dict[str, str]:
    """What the columns are called: as in the task, where they have names."""
    return {
        role: name if isinstance(name := task.columns[role], str) else role
        for role in ("source", "target")
    }


def _line(example: Example, names: dict[str, str]) -> str:
    references = list(example.label or ())
    target = (
        {names["target"]: references[0] if len(references) == 1 else references}
        if references
        else {}
    )
    return (
        json.dumps({names["source"]: example.fields["source"], **target}, ensure_ascii=False) + "\n"
    )


def _others(task: Generation, names: dict[str, str]) -> dict[str, Path | str]:
    """The other splits, for which nothing is written."""
    # one file is whatever split is asked for
    others = ("dev",) if files.is_single(task.path) else task.reader.splits
    there: Iterable[str] = (split for split in others if split != "train" and task.has(split))
    return {
        f"{split}.jsonl": "".join(_line(example, names) for example in task.read(split))
        for split in there
    }


def _chosen(
    pick: Pick,
    words: Sequence[str],
    texts: Sequence[Hypothesis],
    example: Example,
    counted: dict[str, int],
) -> str:
    """What the student is to write: the teacher's text or, where it wrote nothing, the
    reference.
    """
    references = [str(text) for text in example.label or ()]
    text = pick(words, references)
    counted["empty, so the reference"] += text is None
    counted["as the reference"] += text in references
    counted["cut at max_new"] += text is not None and not texts[list(words).index(text)].finished
    return references[0] if text is None else text


def _report(cfg: DictConfig, work: Rewriting, flags: Flags) -> None:
    count, names = len(work.examples), work.names
    if flags.json:
        tell(json.dumps({"out": cfg.out, "sources": count, **work.counted}))
        return
    told = ", ".join(f"{value:,} {what}" for what, value in work.counted.items() if value)
    columns = f" task.columns.source={names['source']} task.columns.target={names['target']}"
    tell(f"{cfg.out}: targets of {count:,} sources" + (f"; {told}" if told else ""))
    tell(
        f"next: plmctl finetune task={work.task.name} task.path={cfg.out}{columns}"
        f" ...{option(flags.plugins)}"
    )
