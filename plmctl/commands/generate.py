"""`plmctl generate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from plmctl.config.build import MISSING, build
from plmctl.config.command import About, Command, Result
from plmctl.config.spec import key_of
from plmctl.core.errors import ConfigError, raise_all
from plmctl.core.terminal import counted, remark, tell
from plmctl.core.values import Batch, Count
from plmctl.storage.atomic import is_stream, refuse_existing
from plmctl.storage.growing import open_growing
from plmctl.storage.paths import refuse_ending
from plmctl.text.given import read_texts


@dataclass(frozen=True)
class Generate(Command):
    """Continue a prompt, rewrite a text, or fill in masks.

    A decoder continues a prompt, an encoder-decoder rewrites a text, and an encoder fills in the
    masks of a text.
    """

    about = About(
        "generate",
        place=120,
        examples=(
            (
                'plmctl generate checkpoint=runs/gpt/optim.lr=0.001 prompt="Return the"'
                " search=sample search.top_p=0.9 max_new=20"
            ),
            'plmctl generate checkpoint=runs/first prompt="a [MASK] of strings" top=3',
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config config_dir plugin",
        slots="search runtime",
    )

    checkpoint: str = MISSING  # a run, a checkpoint or a Hugging Face folder
    # one text: a beginning to continue, a source, or a text with masks to fill
    prompt: str | None = None
    # a file of such texts, one a line; -: standard input, which null takes where it is no terminal
    input: str | None = None
    out: str | None = None  # a .jsonl file of the results; null: they are printed
    overwrite: bool = False  # replace an existing file
    # where none is chosen, the folder of a published model may state one
    search: Any = None
    runtime: Any = None  # library that writes: torch, ctranslate2; null: torch
    # token of the language of the prompts, in a model of several: de_DE, deu_Latn, __de__; null: as
    # in training
    source_language: str | None = None
    # token of the language that it writes; null: as in training, or as the model forces
    target_language: str | None = None
    # number of tokens that each token of a model with memory sees, itself included, so that a long
    # text costs no more; null: all so far, or as in training with model.same_length
    memory: Count | None = None
    # most tokens of a text; null: as many as the model has positions, or 128
    max_new: Count | None = None
    # numbers of the weights, on a CPU: fewer bits are faster, and may change texts; w8a8: the
    # inputs of maps have 8 bits, too
    weights: Literal["fp32", "int8", "int4", "w8a8"] = "fp32"
    # a smaller model with the same tokenizer; it drafts tokens: the same text, sooner
    draft: str | None = None
    draft_tokens: Count = 4  # tokens that it drafts before the model reads them in one pass
    batch_size: Batch = 32  # prompts at the same time
    top: Count = 5  # candidates for each mask
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"

    def perform(self) -> Result:
        """Answer every prompt, on the terminal or in `out`.

        One prompt on a terminal is answered token by token (greedy and sampled). A file of prompts
        gives a line for each. A task that writes lays out the prompts of its models.
        """
        from plmctl.artifacts.deployed import load_to_answer
        from plmctl.generation.answers import TextAnswers, answer_in_order
        from plmctl.runs.published_search import choose_search
        from plmctl.use.generate import build_search, limit_memory, make_answerer, open_draft
        from plmctl.use.prompting import LANGUAGES, make_prompt_reader
        from plmctl.use.runtimes import let_write, open_runtime

        build(self.search, {}, self.plugins, path="search")  # wrong settings are named first
        if self.out is not None:
            if not is_stream(Path(self.out)):
                refuse_ending(self.out, [".jsonl"], "an answer a line")
            refuse_existing(Path(self.out), self.overwrite)
        source, lines = read_texts(self.prompt, self.input)
        how: Any = (self.device, self.precision, self.plugins)
        loaded, precision = load_to_answer(self.checkpoint, *how)
        limit_memory(loaded.model.backbone, self.memory)
        spec = choose_search(self, loaded)
        search = build_search(spec.search, loaded.tokenizer.encode, self.plugins)
        languages = {name: getattr(self, name) for name in LANGUAGES}
        reader = make_prompt_reader(loaded, source, **languages)
        self._refuse_unused(reader.kind, LANGUAGES)
        if reader.kind != "fill":
            runtime = open_runtime(self.runtime, precision, self.plugins, loaded)
            reader = let_write(reader, runtime)
        lengths: Any = {"max_new": spec.max_new, "min_length": spec.search.get("min_length", 0)}
        if self.draft is not None:
            tokens = self.draft_tokens
            lengths["draft"] = open_draft(self.draft, loaded, tokens=tokens, device=self.device)
        answerer = make_answerer(
            reader, search, top=self.top, device=precision.device, weights=self.weights, **lengths
        )
        prompts = reader.all(lines, spec.max_new)
        as_json = self.provenance.json or self.out is not None
        alone = source == "prompt" and not as_json and search.count == 1
        if alone and isinstance(answerer, TextAnswers):
            with precision.autocast():
                answerer.stream(*prompts)
            return 0
        total = partial(_count_lines, Path(source))
        file = nullcontext(tell) if self.out is None else open_growing(Path(self.out), total=total)
        spell = partial(json.dumps, ensure_ascii=False) if as_json else answerer.spell
        typed = sys.stdin is not None and sys.stdin.isatty()
        written = 0
        with precision.autocast(), file as write:
            for answer in answer_in_order(prompts, answerer, self.batch_size, one_by_one=typed):
                write(spell(answer))
                written += 1
        if self.out is not None and not is_stream(Path(self.out)):
            remark(f"{self.out}: {counted(written, 'answer')}")
        return 0

    def _refuse_unused(self, kind: str, languages: Sequence[str]) -> None:
        """ConfigErrors for settings of writing where masks are filled, and the other way round."""
        unused, why = {"top"}, "this model writes"
        if kind == "fill":
            unused = {
                "search",
                "runtime",
                "max_new",
                "weights",
                "draft",
                "draft_tokens",
                *languages,
            }
            why = "this model fills masks"
        words = {key_of(word): word.partition("=")[2] for word in self.provenance.overrides}
        raise_all(
            ConfigError(key, value, f"without effect: {why}", fix="leave it out")
            for key, value in words.items()
            if key.partition(".")[0] in unused
        )


def _count_lines(file: Path) -> int | None:
    """The number of lines of a file; None where there is no file."""
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        return sum(1 for _ in stream)
