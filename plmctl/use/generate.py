"""`plmctl generate checkpoint=... prompt="..."`: text that a model writes, or the masks of a text
that it fills (plmctl/generation/answers.py says how answers look).

One prompt on a terminal is answered token by token as they come (greedy and sampled); a file of
prompts gives a line for each. A model that was fine-tuned on a task that writes is asked as the
task asks it.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch

from plmctl.artifacts.loading import Loaded, load_for
from plmctl.config.build import build
from plmctl.config.spec import Provenance, key_of
from plmctl.config.uses import Generate
from plmctl.core.errors import ConfigError, raise_all
from plmctl.core.terminal import tell
from plmctl.generation.answers import Answer, MaskAnswers, TextAnswers, answer_in_order
from plmctl.generation.prompts import PromptReader
from plmctl.generation.search import Search
from plmctl.models.base import Backbone
from plmctl.storage.atomic import is_stream, refuse_existing
from plmctl.storage.growing import open_growing
from plmctl.storage.paths import refuse_ending
from plmctl.text.given import read_texts
from plmctl.use.prompting import make_prompt_reader


def generate(spec: Generate) -> int:
    """Answer every prompt, on the terminal or in `out`."""
    search = build(spec.search, {}, spec.plugins, path="search")
    if spec.out is not None:
        if not is_stream(Path(spec.out)):
            refuse_ending(spec.out, [".jsonl"], "an answer a line")
        refuse_existing(Path(spec.out), spec.overwrite)
    source, lines = read_texts(spec.prompt, spec.input)
    loaded, precision = load_for(spec)
    answerer = make_answerer(spec, search, loaded, source, precision.device)
    prompts = answerer.reader.all(lines, spec.max_new)
    as_json = spec.provenance.json or spec.out is not None
    alone = source == "prompt" and not as_json and search.count == 1
    if alone and isinstance(answerer, TextAnswers):
        with precision.autocast():
            answerer.stream(*prompts)
        return 0
    total = partial(_count_lines, Path(source))
    file = nullcontext(tell) if spec.out is None else open_growing(Path(spec.out), total=total)
    spell = _to_json if as_json else answerer.spell
    typed = sys.stdin is not None and sys.stdin.isatty()
    with precision.autocast(), file as write:
        for answer in answer_in_order(prompts, answerer, spec.batch_size, one_by_one=typed):
            write(spell(answer))
    return 0


def make_answerer(
    spec: Generate, search: Search, loaded: Loaded, source: str, device: torch.device
) -> TextAnswers | MaskAnswers:
    """What answers the prompts of `source`: it writes, or fills masks, as the model does."""
    if spec.top > (size := loaded.vocab.size):
        raise ConfigError("top", spec.top, f"at most {size}, the size of the vocabulary")
    limit_memory(loaded.model.backbone, spec.memory)
    reader = make_prompt_reader(loaded, source)
    _refuse_unused(reader.kind, spec.provenance)
    max_new = _max_new(spec, reader)
    if reader.kind == "fill":
        return MaskAnswers(reader, spec.top, device)
    return TextAnswers(reader, search, max_new, device)


def _to_json(answer: Answer) -> str:
    return json.dumps(answer, ensure_ascii=False)


def limit_memory(backbone: Backbone, memory: int | None) -> None:
    """Let each token see so many; ConfigError for a model that cannot."""
    if memory is None:
        return
    if "same_length" not in vars(backbone):
        allowed = "null: this model has no memory of the tokens before"
        raise ConfigError("memory", memory, allowed, fix="leave it out")
    vars(backbone).update(memory=memory, same_length=True)


def _max_new(spec: Generate, reader: PromptReader) -> int | None:
    """The most tokens of a text: as asked, else as many as a task's targets have."""
    task = reader.task
    max_new: int | None = task.max_target if spec.max_new is None and task else spec.max_new
    if max_new is not None and (least := spec.search.get("min_length", 0)) > max_new:
        allowed = f"at most {max_new}, the tokens that are written (max_new)"
        raise ConfigError("search.min_length", least, allowed)
    return max_new


def _refuse_unused(kind: str, given: Provenance) -> None:
    """ConfigErrors for settings of writing where masks are filled, and the other way round."""
    unused, why = {"top"}, "this model writes"
    if kind == "fill":
        unused, why = {"search", "max_new"}, "this model fills masks"
    words = {key_of(word): word.partition("=")[2] for word in given.overrides}
    raise_all(
        ConfigError(key, value, f"without effect: {why}", fix="leave it out")
        for key, value in words.items()
        if key.partition(".")[0] in unused
    )


def _count_lines(file: Path) -> int | None:
    """How many lines a file has; None of what is no file."""
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        return sum(1 for _ in stream)
