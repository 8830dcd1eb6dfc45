"""Targets by a teacher instead of those of the training set: `distill.rewrite`."""

from __future__ import annotations

from plmctl.config.build import plain
from plmctl.config.make_spec import spec_of
from plmctl.config.schema import Finetune
from plmctl.core.terminal import remark, tell
from plmctl.storage.paths import find_cache_folder


def replace_targets(spec: Finetune) -> Finetune:
    """The fine-tuning `spec` with texts of `teacher` instead of the targets that it would read;
    `spec` itself without `distill.rewrite`.

    They are written once, into a folder of the cache whose name is a hash of all that decides them.
    """
    settings = (spec.distill or {}).get("rewrite")
    if not settings:
        return spec
    own = {"checkpoint": spec.teacher, "task": plain(spec.task), "device": spec.train.device}
    settings = {**plain(settings), **own, "out": "."}
    work, _ = spec_of("rewrite", settings, spec.provenance).plan()
    out = find_cache_folder(spec.data.cache_dir) / f"by-teacher-{work.identity[:16]}"
    if not out.exists():
        work.write(out)
    (remark if spec.provenance.json else tell)(f"targets by {spec.teacher}: {out}")
    columns = {**work.names, "id": None}
    return spec.replace({"task.path": str(out), "task.columns": columns, "distill.rewrite": None})
