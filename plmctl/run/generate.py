"""`plmctl generate checkpoint=... prompt="..."`: text that a model writes, or the masks of a text
that it fills (plmctl/generation/answers.py says how answers look).

One prompt on a terminal is answered token by token as they come (greedy and sampled); a file of
prompts gives a line for each. A model that was fine-tuned on a task that writes is asked as the
task asks it.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from plmctl.core.errors import ConfigError, raise_all
from plmctl.core.terminal import tell
from plmctl.generation.answers import Answerer, MaskAnswers, TextAnswers, answer_in_order
from plmctl.generation.prompts import PromptReader
from plmctl.run.build import build
from plmctl.run.loading import load
from plmctl.run.prompting import prompt_reader
from plmctl.run.schema import Generate
from plmctl.storage.atomic import refuse_existing
from plmctl.storage.growing import open_growing
from plmctl.text.given import read_texts
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of


def generate(spec: Generate) -> int:
    """Answer every prompt, on the terminal or in `out`."""
    search = build(spec.search, {}, spec.plugins, path="search")
    if spec.out is not None:
        refuse_existing(Path(spec.out), spec.overwrite)
    source, lines = read_texts(spec.prompt, spec.input)
    precision = choose(spec.precision, device_of(spec.device, "device"))
    loaded = load(spec.checkpoint, plugins=spec.plugins)
    if spec.top > (size := loaded.vocab.size):
        raise ConfigError("top", spec.top, f"at most {size}, the size of the vocabulary")
    loaded.model.to(precision.device)
    reader = prompt_reader(loaded, source, spec.plugins)
    _refuse_idle(reader.kind, spec.provenance.overrides)
    max_new = _max_new(spec, reader)
    prompts, as_json = reader.all(lines, spec.max_new), spec.provenance.json or spec.out is not None
    answerer: Answerer
    if reader.kind == "fill":
        answerer = MaskAnswers(reader, spec.top, precision.device, as_json)
    else:
        answerer = TextAnswers(reader, search, max_new, precision.device, as_json)
        if source == "prompt" and not as_json and search.count == 1:
            with precision.autocast():
                answerer.stream(*prompts)
            return 0
    total = partial(_count, source)
    file = nullcontext(tell) if spec.out is None else open_growing(Path(spec.out), total=total)
    with precision.autocast(), file as write:
        for line in answer_in_order(prompts, answerer, spec.batch_size):
            write(line)
    return 0


def _max_new(spec: Generate, reader: PromptReader) -> int | None:
    """The most tokens of a text: as asked, else as many as a task's targets have."""
    task = reader.task
    max_new: int | None = task.max_target if spec.max_new is None and task else spec.max_new
    if max_new is not None and (least := spec.search.get("min_length", 0)) > max_new:
        allowed = f"at most {max_new}, the tokens that are written (max_new)"
        raise ConfigError("search.min_length", least, allowed)
    return max_new


def _refuse_idle(kind: str, words: Collection[str]) -> None:
    """ConfigErrors for settings of writing where masks are filled, and the other way round."""
    idle, why = (
        (("search", "max_new"), "this model fills masks")
        if kind == "fill"
        else (("top",), "this model writes")
    )
    told = [word.lstrip("+~").partition("=") for word in words]
    raise_all(
        [
            ConfigError(key, value, f"without effect: {why}", fix="leave it out")
            for key, _, value in told
            if key.partition(".")[0] in idle
        ]
    )


def _count(source: str) -> int | None:
    """How many lines a file has; None of what is no file."""
    if not Path(source).is_file():
        return None
    with Path(source).open("rb") as file:
        return sum(1 for _ in file)
