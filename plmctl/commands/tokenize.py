"""`plmctl tokenize`: text to a token directory, with a tokenizer trained on it or a given one."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from plmctl.config.build import build, plain
from plmctl.data import tokenizing
from plmctl.data.shards import is_tokens
from plmctl.data.survey import Say, Source, quiet
from plmctl.data.tokenizing import Job
from plmctl.errors import ConfigError
from plmctl.text.train import Recipe

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.config.compose import Flags


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """Write `out` and say what is in it."""
    path = plain(cfg.data.path)
    if is_tokens(path):
        raise ConfigError("data.path", path, "holds tokens already; give the text they were made from")
    with progress() as say:
        manifest = tokenizing.tokenize(job(cfg, path, say=say, processes=cfg.processes, plugins=flags.plugins), cfg.out)
    print("\n".join(report(manifest, cfg.out)))
    return 0


def job(cfg: DictConfig, path: Any, *, say: Say = quiet, processes: int | None = None, plugins: tuple[str, ...] = ()) -> Job:
    """The job that the `data` and `tokenizer` nodes describe."""
    data = cfg.data
    recipe: Recipe = build(cfg.tokenizer, plugins=plugins, path="tokenizer")
    valid_path = plain(data.valid_path)
    valid = None if valid_path is None else Source(valid_path, data.field, data.lines)
    return Job(
        Source(plain(path), data.field, data.lines), recipe, valid=valid, valid_share=data.valid_share, segment=data.segment,
        processes=processes, say=say,
    )  # fmt: skip


def report(manifest: dict[str, Any], out: object) -> list[str]:
    """What was made, a line each."""
    kind = manifest["tokenizer"]
    lines = [f"{out}: {kind['kind']} tokenizer with {kind['size']:,} tokens ({kind['fingerprint'][:8]})"]
    for name, split in manifest["splits"].items():
        if not split["tokens"]:
            lines.append(f"  {name}: nothing, too few documents to hold one out (data.valid_path=... gives some)")
            continue
        ratio = split["bytes"] / max(1, split["tokens"])
        lines.append(
            f"  {name}: {split['documents']:,} documents, {split['sentences']:,} sentences, {split['tokens']:,} tokens, "
            f"{ratio:.2f} bytes a token"
        )
    readings = sorted({entry["lines"] for entry in manifest["files"] if entry.get("found")})
    if readings:
        lines.append(f"  lines are read as: {', '.join(readings)} (data.lines=auto)")
    if manifest["dropped_from_train"]:
        lines.append(f"  {manifest['dropped_from_train']:,} documents are in data.valid_path too and were left out of train")
    return lines


@contextmanager
def progress() -> Iterator[Say]:
    """A progress bar on a terminal; elsewhere a line now and then, and none for what takes a few seconds."""
    start, last = time.monotonic(), time.monotonic()
    began: dict[str, float] = {}

    def line(doing: str, done: int, total: int) -> str:
        seconds = time.monotonic() - began.setdefault(doing, time.monotonic())
        share = f" of {total / 1e6:,.1f}" if total else ""
        speed = f", {done / 1e6 / seconds:.1f} MB/s" if seconds > 0.5 else ""
        return f"{doing}: {done / 1e6:,.1f}{share} MB{speed}" if done else doing

    if not sys.stderr.isatty():

        def plainly(doing: str, done: int, total: int) -> None:
            nonlocal last
            text = line(doing, done, total)
            if time.monotonic() - last > 10:
                last = time.monotonic()
                print(text, file=sys.stderr, flush=True)

        yield plainly
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:

        def shown(doing: str, done: int, total: int) -> None:
            status.update(f"{line(doing, done, total)}  {time.monotonic() - start:.0f} s")

        yield shown
