"""`plmctl generate checkpoint=... prompt="..."`: text that a model writes, or the masks of a text
that it fills.

Each prompt gives `search.count` texts, best first: on the terminal one a line, for one prompt token
by token as they come (greedy and sampled); with --json or out= as JSON lines,

    {"prompt": ..., "texts": [{"text": ..., "score": ..., "finished": ...}, ...]}

(finished: it ended by itself), or from a masked language model

    {"prompt": ..., "text": ..., "masks": [[{"token": ..., "probability": ...}, ...], ...]}

in the order of the prompts, each written as soon as it is known. A blank line of a file gets a
blank line, or an empty record: line n answers line n. A model that was fine-tuned on a task that
writes is asked as the task asks it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from plmctl.commands.prompts import AHEAD, Prompt, Reader, alike, note
from plmctl.core.errors import ConfigError, DataError, raise_all
from plmctl.core.terminal import tell
from plmctl.generation.decode import generate
from plmctl.generation.fill import Candidates, fill
from plmctl.generation.search import Hypothesis, Search
from plmctl.run.build import build
from plmctl.run.compose import Flags
from plmctl.run.loading import Loaded, load
from plmctl.storage.atomic import end_of, is_stream, refuse_existing
from plmctl.tasks.predictions import rounded
from plmctl.text.given import read_texts
from plmctl.training.distributed import device_of
from plmctl.training.precision import choose


def run(cfg: DictConfig, flags: Flags) -> int:
    search = build(cfg.search, {}, flags.plugins, path="search")
    if cfg.out is not None:
        refuse_existing(Path(cfg.out), cfg.overwrite)
    source, lines = read_texts(cfg.prompt, cfg.input)
    device = device_of(cfg.device, "device")
    precision, loaded = choose(cfg.precision, device), load(cfg.checkpoint, plugins=flags.plugins)
    size = loaded.vocab.size
    if cfg.top > size:
        raise ConfigError("top", cfg.top, f"at most {size}, the size of the vocabulary")
    loaded.model.to(device)
    reader = Reader.of(loaded, source, flags.plugins)
    _refuse_idle(reader.kind, flags.overrides)
    max_new = (
        reader.task.max_target if cfg.max_new is None and reader.task is not None else cfg.max_new
    )
    if max_new is not None and cfg.search.get("min_length", 0) > max_new:
        raise ConfigError(
            "search.min_length",
            cfg.search.min_length,
            f"at most {max_new}, the tokens that are written (max_new)",
        )
    as_json = flags.json or cfg.out is not None
    if reader.kind == "fill":
        answer = partial(_filled, reader, top=cfg.top, device=device, as_json=as_json)
    else:
        answer = partial(
            _written, reader, search=search, max_new=max_new, device=device, as_json=as_json
        )
    prompts = reader.all(lines, cfg.max_new)
    if source == "prompt" and not as_json and reader.kind != "fill" and search.count == 1:
        (prompt,) = prompts
        with precision.autocast():
            _streamed(reader, prompt, search, max_new, device)
        return 0
    blank = partial(_blank, reader, count=search.count, as_json=as_json)
    with (
        precision.autocast(),
        nullcontext(tell) if cfg.out is None else _into(Path(cfg.out), source) as write,
    ):
        for line in _in_order(prompts, cfg.batch_size, answer, blank):
            write(line)
    return 0


def _refuse_idle(kind: str, words: Sequence[str]) -> None:
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


@contextmanager
def _into(place: Path, source: str) -> Iterator[Callable[[str], None]]:
    """Writes lines of a file that appears when it is complete; what there is of one that was
    stopped stays beside it.
    """
    device, place = is_stream(place), place if is_stream(place) else end_of(place)
    unfinished = place if device else place.with_name(f"{place.name}.partial")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        out = unfinished.open("w", encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"cannot write: {error.strerror or error}", file=place, fix="out=<a writable file>"
        ) from error
    written = 0

    def write(line: str) -> None:
        nonlocal written
        out.write(f"{line}\n")
        out.flush()
        written += 1

    try:
        with out:
            yield write
    except BaseException:
        if written:
            note(
                f"{written}{_of(source)} lines are answered, in {unfinished}, which is not complete"
            )
        elif not device:
            unfinished.unlink()
        raise
    if not device:
        os.replace(unfinished, place)


def _of(source: str) -> str:
    """of how many lines, where that is known."""
    if not Path(source).is_file():
        return ""
    with Path(source).open("rb") as file:
        return f" of {sum(1 for _ in file)}"


def _in_order(
    prompts: Iterator[Prompt],
    batch_size: int,
    answer: Callable[[Sequence[Prompt]], list[str]],
    blank: Callable[[Prompt], str],
) -> Iterator[str]:
    """What `answer` makes of every prompt; batches are of similar length, results in the order
    of the prompts.
    """
    interactive = sys.stdin is not None and sys.stdin.isatty()
    while some := list(islice(prompts, 1 if interactive else AHEAD * batch_size)):
        found = {place: blank(prompt) for place, prompt in enumerate(some) if not prompt.ids}
        shown = 0
        for chosen in alike(some, batch_size, without=found) or [[]]:
            found |= (
                dict(zip(chosen, answer([some[i] for i in chosen]), strict=True)) if chosen else {}
            )
            while shown in found:
                yield found[shown]
                shown += 1


def _blank(reader: Reader, prompt: Prompt, *, count: int, as_json: bool) -> str:
    """The answer to a blank line: as many blank lines as texts, or a record without any."""
    if not as_json:
        return "\n" * (count - 1 if reader.kind != "fill" else 0)
    nothing: dict[str, Any] = {"text": "", "masks": []} if reader.kind == "fill" else {"texts": []}
    return json.dumps({"prompt": prompt.text, **nothing}, ensure_ascii=False)


def _written(
    reader: Reader,
    prompts: Sequence[Prompt],
    *,
    search: Search,
    max_new: int | None,
    device: torch.device,
    as_json: bool,
) -> list[str]:
    loaded, batch = reader.loaded, reader.batch(prompts).to(device)
    keys = [prompt.number for prompt in prompts]
    answers = generate(
        loaded.model,
        batch,
        vocab=loaded.vocab,
        search=search,
        head=reader.head,
        max_new=max_new,
        keys=keys,
    )
    return [_shown(reader, *pair, as_json) for pair in zip(prompts, answers, strict=True)]


def _shown(reader: Reader, prompt: Prompt, found: Sequence[Hypothesis], as_json: bool) -> str:
    written = [(said(reader, prompt, text.ids), text) for text in found]
    if not as_json:
        return "\n".join(words.replace("\n", "\\n") for words, _ in written)
    each = [
        {"text": words, "score": rounded(text.score), "finished": text.finished}
        for words, text in written
    ]
    return json.dumps({"prompt": prompt.text, "texts": each}, ensure_ascii=False)


def said(reader: Reader, prompt: Prompt, ids: Sequence[int]) -> str:
    """What was written, as text: behind its prompt where it goes on (so that a space between
    words stays), with sentinels.
    """
    tokenizer, vocab = reader.loaded.tokenizer, reader.loaded.vocab
    if reader.task is not None:
        return tokenizer.decode(list(ids)).strip()
    if reader.kind == "text" and "tracks.segment" not in reader.loaded.model.backbone.needs:
        before, whole = tokenizer.decode(prompt.ids), tokenizer.decode([*prompt.ids, *ids])
        if whole.startswith(before):
            return whole[len(before) :]
    spelled = dict(zip(vocab.sentinels, tokenizer.roles.sentinels, strict=True))
    parts = [(first, list(some)) for first, some in groupby(ids, key=spelled.get)]
    return " ".join(name or tokenizer.decode(some) for name, some in parts)


def _streamed(
    reader: Reader, prompt: Prompt, search: Search, max_new: int | None, device: torch.device
) -> None:
    """One prompt to the terminal, token by token; a beam's text at its end."""
    shown, ids = "", list[int]()

    def show(tokens: list[int]) -> None:
        nonlocal shown
        ids.extend(tokens)
        text = whole_characters(said(reader, prompt, ids))
        # else a later token has changed how an earlier one is spelled: at the end
        if text.startswith(shown):
            tell(text[len(shown) :], end="")
            shown = text

    loaded = reader.loaded
    batch = reader.batch([prompt]).to(device)
    ((found,),) = generate(
        loaded.model,
        batch,
        vocab=loaded.vocab,
        search=search,
        head=reader.head,
        max_new=max_new,
        keys=[0],
        watch=show,
    )
    final = said(reader, prompt, found.ids)
    tell(final[len(shown) :] if final.startswith(shown) else f"\n{final}")


def whole_characters(text: str) -> str:
    """Without what stands at the end for bytes of a character that is not complete yet."""
    return text.rstrip("\ufffd")


def _filled(
    reader: Reader, prompts: Sequence[Prompt], *, top: int, device: torch.device, as_json: bool
) -> list[str]:
    loaded, batch = reader.loaded, reader.batch(prompts).to(device)
    found = fill(loaded.model, batch, mask=loaded.vocab.id("mask"), top=top, size=loaded.vocab.size)
    return [_candidates(loaded, *pair, as_json) for pair in zip(prompts, found, strict=True)]


def _candidates(loaded: Loaded, prompt: Prompt, masks: Sequence[Candidates], as_json: bool) -> str:
    best = iter([candidates[0][0] for candidates in masks])
    text = loaded.tokenizer.decode(
        [next(best) if i == loaded.vocab.mask else i for i in prompt.ids]
    )
    spelled: list[list[dict[str, Any]]] = [
        [
            {"token": loaded.tokenizer.pieces([i])[0], "probability": rounded(share)}
            for i, share in candidates
        ]
        for candidates in masks
    ]
    if as_json:
        return json.dumps(
            {"prompt": prompt.text, "text": text, "masks": spelled}, ensure_ascii=False
        )
    rows = [
        f"  mask {n}: " + ", ".join(f"{c['token']} {c['probability']:.3f}" for c in some)
        for n, some in enumerate(spelled, 1)
    ]
    return "\n".join([text, *rows])
