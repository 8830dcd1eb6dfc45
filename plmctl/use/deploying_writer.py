"""A model that writes as a folder of CTranslate2. Its texts are compared with those of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.artifacts.convert import refuse_target
from plmctl.artifacts.deployed import make_runtime
from plmctl.artifacts.loading import CARD, Loaded
from plmctl.config.compose import compose
from plmctl.config.saved import CONFIG
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.core.extras import require_library
from plmctl.core.rounding import round_floats
from plmctl.core.spelling import spell_line, spell_setting
from plmctl.core.terminal import counted, remark
from plmctl.generation.greedy import Greedy
from plmctl.runtime.eager import EagerRuntime
from plmctl.runtime.graph import TOLERANCE
from plmctl.runtime.stored import WRITERS
from plmctl.storage.atomic import open_folder, write_json, write_text
from plmctl.storage.settings_file import to_yaml
from plmctl.tasks import inference
from plmctl.tasks.inference import Split
from plmctl.tasks.record import Example
from plmctl.use.asked_task import open_task
from plmctl.use.deploying import (
    DIGITS,
    TORCH,
    RuntimeScores,
    advise_instead,
    describe_machine,
    describe_scores,
    measure_answers,
    open_folded,
    read_labelled,
    refuse_loss,
    remark_scores,
    write_tokenizer,
)

UNLIKE = 0.02  # share of texts that rounding may change, where two tokens are equally likely
LINES = "held_out.txt, lines of text"
LONGEST = 64  # tokens of a prompt, and of the text behind it, in rows of lines


def deploy_writer(
    source: Path,
    target: Path,
    *,
    to: str,
    int8: bool = False,
    keep: float = 0.99,
    data: str | None = None,
    plugins: Sequence[str] = (),
) -> None:
    """Write a model into a folder of a library that writes texts without PyTorch.

    Texts are those of a greedy search. A model without a task is scored by perplexity.

    Args:
        source: A run, or a checkpoint.
        target: The folder, which appears when all is in it.
        to: The library, "ctranslate2".
        int8: Whether weights and inputs of matrix products have 8 bits.
        keep: The least share of the score that 8 bits keep.
        data: A file to score: a labelled one, or for a decoder without a task a text on each line;
            None: the dev split of the task.
        plugins: The packages outside plmctl that the model may be made of.

    Raises:
        UsageError: The library is missing, it cannot compute this model, or the texts differ.
    """
    refuse_target(target)
    with advise_instead(source, target, plugins):
        require_library(to, to, f"--to {to}", otherwise=TORCH)
        loaded, _, _ = open_folded(source, plugins)
        task, split = _open_split(loaded, source, data)
        own, task.search = task.search, Greedy()
        with open_folder(target) as partial:
            remark(f"1: PyTorch answers {counted(len(split.examples), 'row')} of {split.name}")
            before = measure_answers(EagerRuntime(), loaded, task, split, partial)
            card: dict[str, Any] = {"about": "a model that plmctl trained, and that writes texts"}
            card |= {"format": to, "numbers": "fp32", "task": loaded.own_task().get("name")}
            remark(f"2: the model is written for {to} in fp32, and its answers measured")
            plain = after = _write(card, partial, loaded, task, split)
            card |= _refuse_difference(before, after)
            if int8:
                card |= {"numbers": "int8", "weights": "8 bits with a scale for each row"}
                remark(f"3: 8 bits are written for {to}, and their answers measured")
                after = _write(card, partial, loaded, task, split)
                refuse_loss(task, before, after, keep)
            scores = describe_scores(task, split, before, after, keep if int8 else None)
            scores["scores"]["search"] = "greedy"
            card |= _describe(loaded, task) | scores
            card |= describe_machine(to, partial, int8=False)
            write_text(partial / CONFIG, to_yaml(loaded.config))
            framed = loaded.model.backbone.writes == "target"
            write_tokenizer(loaded, task, partial, framed=framed, segments=False)
            write_json(partial / CARD, card)
        remark_scores(task, split, target, before, after, plain)
        _advise_search(to, own, target, loaded)


def _open_split(loaded: Loaded, source: Path, data: str | None) -> tuple[Any, Split]:
    """The task that a model was trained on, or one for its perplexity, and the scored rows."""
    if loaded.own_task():
        task = open_task(loaded.source, None, (), checkpoint=source)
        if not task.facts.writes:
            what = f"task={task.name} has labels, and CTranslate2 writes texts"
            fix = spell_line("convert", source, "--to", "onnx", "--out", "deployed")
            raise UsageError(f"{source}: {what}\n  fix: {fix}")
        return task, read_labelled(task, loaded, source, data)
    pair = loaded.model.backbone.writes == "target"
    if data is None:
        fix = "--data pairs.tsv, a table with source and target" if pair else f"--data {LINES}"
        raise DataError(f"{source}: no task, so no rows to score", fix=fix)
    limit = loaded.model.backbone.max_target
    longest = LONGEST if limit is None else min(LONGEST, limit // 2)
    settings = {"path": data, "max_length": longest, "max_target": longest}
    words = ["checkpoint=model", "task=translation", "task.metrics=[perplexity]"]
    words += [spell_setting(f"task.{name}", value) for name, value in settings.items()]
    asked = compose("eval", None, words, plugins=loaded.source.plugins).task
    keys = [f"task.{name}" for name in (*settings, "metrics")]
    task = open_task(loaded.source, asked, keys, checkpoint=source)
    if pair:
        return task, read_labelled(task, loaded, source, data)
    examples = [*_halve_lines(Path(data))]
    if not examples:
        raise DataError("no line of two words or more", file=data, fix=f"--data {LINES}")
    return task, inference.encode_split(task, Path(data).stem, examples, loaded.tokenizer)


def _halve_lines(file: Path) -> Iterator[Example]:
    """The first half of each line as a prompt, the second as the text behind it."""
    if not file.is_file():
        raise DataError("no such file", file=file, fix=f"--data {LINES}")
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split()
        half = len(words) // 2
        if half:
            first, second = " ".join(words[:half]), " ".join(words[half:])
            place = f"{file}:{number}"
            yield Example(str(number), {"source": first}, (second,), place=place)


def _write(
    card: dict[str, Any], folder: Path, loaded: Loaded, task: Any, split: Split
) -> RuntimeScores:
    """Write the model, and measure its texts."""
    vocab, tokenizer = loaded.vocab, loaded.tokenizer
    roles = {name: getattr(vocab, name) for name in ("bos", "eos", "unk")}
    library = WRITERS[card["format"]](int8=card["numbers"] == "int8")
    library.write(
        loaded.model,
        folder,
        tokenizer.pieces(range(vocab.size)),
        {name: number for name, number in roles.items() if number is not None},
    )
    return measure_answers(make_runtime(folder, card), loaded, task, split, folder)


def _refuse_difference(before: RuntimeScores, after: RuntimeScores) -> dict[str, Any]:
    """The largest difference of a token's log-probability, and the share of equal texts.

    Raises:
        UsageError: They differ by more than rounding.
    """
    tokens = np.maximum(before.logits["tokens"], 1)
    own, found = before.logits["nll"] / tokens, after.logits["nll"] / tokens
    differences = np.abs(found - own)
    largest = float(differences.max())
    if not (differences <= TOLERANCE * (1 + own)).all():
        what = f"the file has other log-probabilities than PyTorch, by {largest:.3g} a token"
        raise UsageError(f"{what}\n  fix: {TORCH}")
    same = (before.logits["written"] == after.logits["written"]).all(1)
    unlike = int((~same).sum())
    if unlike > math.ceil(UNLIKE * len(same)):
        what = f"the file writes {unlike} of {len(same)} texts otherwise than PyTorch"
        raise UsageError(f"{what}\n  fix: {TORCH}")
    facts = {"largest_difference_of_fp32": largest, "same_texts": float(same.mean())}
    return dict(round_floats(facts, DIGITS))


def _describe(loaded: Loaded, task: Any) -> dict[str, Any]:
    """The facts about a model, for those who feed it."""
    backbone, vocab, tokenizer = loaded.model.backbone, loaded.vocab, loaded.tokenizer
    start = getattr(backbone, "start", None)
    return {
        "writes": "a text for a source" if backbone.writes == "target" else "on behind a prompt",
        "start": None if start is None else tokenizer.pieces([start])[0],
        "end": None if vocab.eos is None else tokenizer.pieces([vocab.eos])[0],
        "max_length": task.max_length,
        "max_target": task.max_target,
        "positions": backbone.max_length,
    }


def _advise_search(to: str, search: Any, folder: Path, loaded: Loaded) -> None:
    """Print the setting of `plmctl eval` without which the library has no search of the task."""
    if not loaded.own_task():
        return
    try:
        WRITERS[to]().load(folder).read_facts(search)
    except ConfigError as error:
        fix = spell_line(
            "eval", f"checkpoint={folder}", f"task={loaded.own_task()['name']}", f"task.{error.fix}"
        )
        remark(f"{error.path}={error.value} of its task is not of {to}: {fix}")
