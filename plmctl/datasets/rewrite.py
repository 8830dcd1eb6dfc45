"""Which teacher writes the targets of which task, and how: for `plmctl data rewrite`, and for a
fine-tuning with `distill.rewrite`.
"""

from __future__ import annotations

import json
from typing import Any

from plmctl.artifacts.identity import identity
from plmctl.artifacts.loading import Loaded, load
from plmctl.config.build import build, plain
from plmctl.config.make_spec import spec_of
from plmctl.config.writing import Rewrite
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import remark, tell
from plmctl.datasets.after_writing import spell_next
from plmctl.distill.rewriting import Rewriting
from plmctl.distill.sequence import Nearest, Pick, pick_likeliest
from plmctl.generation.prompts import PromptReader
from plmctl.storage.paths import find_cache_folder
from plmctl.storage.resumable import new_folder
from plmctl.tasks.generation import Generation
from plmctl.training.processes.world import device_of
from plmctl.use.prompting import build_writing_task, make_prompt_reader


def rewrite(spec: Rewrite) -> int:
    """Write `out` and say what is in it."""
    out, work = new_folder(spec.out), plan_rewriting(spec)
    work.write(out)
    count, names = len(work.examples), work.names
    if spec.provenance.json:
        tell(json.dumps({"out": spec.out, "sources": count, **work.counted}))
        return 0
    counted = ", ".join(f"{value:,} {what}" for what, value in work.counted.items() if value)
    columns = [spell_setting(f"task.columns.{side}", names[side]) for side in ("source", "target")]
    tell(f"{spec.out}: targets of {count:,} sources" + (f"; {counted}" if counted else ""))
    tell(spell_next(spec, work.task.name, work.task, columns))
    return 0


def plan_rewriting(spec: Rewrite) -> Rewriting:
    """What `checkpoint` is to write for the sources of a task, with `search` and `pick`."""
    device = device_of(spec.device, "device")
    search = build(spec.search, {}, spec.plugins, path="search")
    nearest = spec.pick == "nearest"
    if nearest and search.count < 2:
        allowed = "at least 2: pick=nearest chooses among them"
        raise ConfigError("search.count", search.count, allowed, fix="search.count=5")
    loaded = load(spec.checkpoint, plugins=spec.plugins)
    task, reader = _choose_task(spec, loaded), _make_reader(spec, loaded)
    pick: Pick = pick_likeliest
    if nearest:
        pick = Nearest(tokenize=task.tokenize, lowercase=task.lowercase)
    return Rewriting(
        reader=reader,
        task=task,
        search=search,
        pick=pick,
        max_new=spec.max_new or (reader.task or task).max_target,
        batch_size=spec.batch_size,
        device=device,
        how={"model": identity(loaded.source), "pick": spec.pick, "search": plain(spec.search)},
    )


def replace_targets(spec: Any) -> Any:
    """The fine-tuning `spec` with texts of `teacher` in place of the targets that it would read;
    `spec` itself without `distill.rewrite`.

    They are written once, into a folder of the cache whose name is a hash of all that decides them.
    """
    settings = (spec.get("distill") or {}).get("rewrite")
    if not settings:
        return spec
    own = {"checkpoint": spec.teacher, "task": plain(spec.task), "device": spec.train.device}
    settings = {**plain(settings), **own, "out": "."}
    work = plan_rewriting(spec_of("rewrite", settings, spec.provenance))
    out = find_cache_folder(spec.data.cache_dir) / f"by-teacher-{work.identity[:16]}"
    if not out.exists():
        work.write(out)
    (remark if spec.provenance.json else tell)(f"targets by {spec.teacher}: {out}")
    columns = {**work.names, "id": None}
    return spec.replace({"task.path": str(out), "task.columns": columns, "distill.rewrite": None})


def _choose_task(spec: Rewrite, loaded: Loaded) -> Generation:
    """The task that is asked for, else the one the teacher was fine-tuned on; ConfigError where
    it writes no texts.
    """
    node = loaded.own_task() if spec.task is None else plain(spec.task)
    if not node:
        what, fix = "must be given: whose sources are they?", "task=translation task.path=<folder>"
        raise ConfigError("task", ..., what, fix=fix)
    task = build_writing_task(loaded, node)
    if task is None:
        allowed = "a task whose targets are texts: translation, summarization, seq2seq"
        raise ConfigError("task", node.get("name"), allowed)
    return task


def _make_reader(spec: Rewrite, loaded: Loaded) -> PromptReader:
    """How the teacher reads a source; ConfigError for a model that does not write one text for
    another.
    """
    reader = make_prompt_reader(loaded, "train")
    if reader.kind == "source" or (reader.kind == "text" and reader.task is not None):
        return reader
    what = "a decoder that was fine-tuned on no task that writes"
    if reader.kind == "fill":
        what = "an encoder, which fills masks"
    tasks = "translation, summarization, seq2seq"
    fix = f"checkpoint=<an encoder-decoder, or the run of a finetune on {tasks}>"
    allowed = f"a teacher that writes one text for another; this is {what}"
    raise ConfigError("checkpoint", spec.checkpoint, allowed, fix=fix)
