"""A chain's steps one after the other, each an ordinary command in a folder of its own; what is
finished stays finished.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.chain.steps import RUN, Chain, Step, filled
from plmctl.core.progress import clock
from plmctl.core.terminal import remark
from plmctl.data.shards import MANIFEST
from plmctl.report.runs import RunLog
from plmctl.run.resume import leaves
from plmctl.storage.atomic import write_json
from plmctl.study.content import JOB
from plmctl.study.job import DONE, perform
from plmctl.study.job import JOB as RECORD
from plmctl.study.plan import resolved
from plmctl.study.run import opened

TIME = "seconds.json"  # of a step, over all sittings


@dataclass(frozen=True)
class Done:
    """What a finished step has to show."""

    step: Step
    place: Path
    line: str

    @property
    def seconds(self) -> float:
        return _seconds(self.place)

    @property
    def figure(self) -> str:
        return figure(self.step, self.place / RUN)


def run(chain: Chain, out: Path, *, quiet: bool = False) -> tuple[int, list[Done]]:
    """(the exit code of the step that ended it, else 0; the steps that are finished).

    `quiet`: what the steps print goes to the standard error.
    """
    done: list[Done] = []
    with opened(
        out,
        {"recipe": chain.recipe, "words": list(chain.words)},
        kind="chain",
        command="plmctl recipes run",
    ):
        folders = chain.folders(out)
        absolute = {name: str(Path(place).resolve()) for name, place in folders.items()}
        for number, step in enumerate(chain.steps, 1):
            place, line = out / step.folder, step.line(folders)
            head = f"[{number}/{len(chain.steps)}] {step.name}"
            if (place / DONE).is_file() and (place / RUN).is_dir():
                say(f"{head}: finished before, {clock(_seconds(place))}; {place / RUN}")
            else:
                for note in _changes(step, out):
                    say(f"{head}: {note}")
                say(f"{head}: {'goes on' if (place / RUN).exists() else 'starts'}\n$ {line}")
                code = _perform(step, place, absolute, quiet)
                if code:
                    return code, done
                say(f"{head}: done, {clock(_seconds(place))}; {figure(step, place / RUN)}")
            done.append(Done(step, place, line))
    return 0, done


def _perform(step: Step, place: Path, folders: Mapping[str, str], quiet: bool) -> int:
    """Run the command, or go on with it; the time that it took counts, however it ended."""
    place.mkdir(parents=True, exist_ok=True)
    (place / DONE).unlink(missing_ok=True)  # of a run that is gone
    words = [filled(word, folders) for word in step.words]
    write_json(
        place / RECORD,
        {
            "verb": step.verb,
            "label": step.name,
            "config": resolved(step.config, folders),
            "words": words,
            "plugins": step.plugins,
            "keep": True,
            "plan": step.config,
        },
    )
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        if quiet:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.callback(lambda: write_json(place / TIME, _seconds(place) + time.monotonic() - start))
        return perform(place)


def _seconds(place: Path) -> float:
    return (
        json.loads((place / TIME).read_text(encoding="utf-8")) if (place / TIME).is_file() else 0.0
    )


def _changes(step: Step, out: Path) -> Iterator[str]:
    """What is another than in the newest folder of a step of this name, which stays as it is."""
    others = [
        file.parent
        for file in out.glob(f"{step.name}-*/{RECORD}")
        if file.parent.name.rpartition("-")[0] == step.name
    ]
    others = sorted(
        (place for place in others if place.name != step.folder),
        key=lambda place: place.stat().st_mtime,
    )
    if others and not (out / step.folder).exists():
        before = dict(leaves(json.loads((others[-1] / RECORD).read_text(encoding="utf-8"))["plan"]))
        now = dict(leaves(json.loads(json.dumps(step.config))))
        told = [
            f"{path}: {_shown(before.get(path))} -> {_shown(now.get(path))}"
            for path in dict.fromkeys([*before, *now])
            if before.get(path) != now.get(path) and not path.startswith(("run.", "recipe"))
        ]
        more = f" and {len(told) - 4} more" if len(told) > 4 else ""
        yield (
            f"another than in {others[-1]}, which stays"
            f" ({', '.join(told[:4]) or 'a file has changed'}{more}); begins anew"
        )


def _shown(value: Any) -> str:
    return str(value).removeprefix(JOB)


def figure(step: Step, run: Path) -> str:
    """The number that one would ask a finished step for."""
    if step.verb == "tokenize":
        manifest = json.loads((run / MANIFEST).read_text(encoding="utf-8"))
        return (
            f"{manifest['splits']['train']['tokens']:,} tokens, vocabulary"
            f" {manifest['tokenizer']['size']:,}"
        )
    if step.verb == "pretrain":
        log = RunLog.read(run)
        held = [name for name in log.series if name.startswith(("valid/loss", "valid/acc/"))] or [
            "loss"
        ]
        return ", ".join(f"{name.removeprefix('valid/')} {log.last(name):.4g}" for name in held)
    splits = json.loads((run / "result.json").read_text(encoding="utf-8"))["metrics"]
    scores: dict[str, float] = splits.get("dev") or next(iter(splits.values()), {})
    name = next(iter(scores), "")
    return f"{name} {scores[name]:.4g}" if name else ""


def say(line: str) -> None:
    remark(line)
