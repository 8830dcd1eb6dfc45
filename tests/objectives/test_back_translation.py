"""Back-translation against the definition, which languages it reads and writes, and through the
command line.
"""

from __future__ import annotations

import copy
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from plmctl.artifacts.assemble import build_model
from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Rows, Seq, Targets
from plmctl.core.errors import ConfigError
from plmctl.data.formats.base import Plan
from plmctl.data.formats.in_language import InLanguage
from plmctl.data.formats.sentences import Sentences
from plmctl.models.base import Model
from plmctl.objectives.back_translation import BackTranslation
from plmctl.runs.contract.contract import check_contract
from plmctl.runs.contract.stand_in import TINY

SIZE = ["size=tiny", "size.num_layers=1", "size.width=32", "size.inner_width=48"]
SMALL = [*SIZE, "format.max_length=12"]


def model_of(*words: str) -> Model:
    """Places and languages weigh much, so that it does not write one token for ever."""
    cfg = compose("pretrain", "mass_translation", [*SMALL, "heads.seq2seq.tied=false", *words])
    model = build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()
    torch.manual_seed(10)
    for name, parameter in model.named_parameters():
        spread = (
            3.0
            if "position" in name or "language" in name
            else 0.3
            if name.endswith("bias")
            else 1.0
        )
        torch.nn.init.normal_(parameter, std=spread)
        if "norm" in name and name.endswith("weight"):
            torch.nn.init.ones_(parameter)
    return model


def batch_of(lengths: list[int], languages: list[int]) -> Batch:
    rows, width = len(lengths), max(lengths)
    generator = torch.Generator().manual_seed(1)
    ids, length = (
        torch.randint(2, TINY.size, (rows, width), generator=generator),
        torch.tensor(lengths),
    )
    tracks = {"language": torch.tensor(languages)[:, None].expand(rows, width)}
    target = Seq(ids, length, tracks)
    places = target.real.flatten().nonzero().flatten()
    asked = Targets(places, ids.flatten()[places], len(places))
    # nothing that back-translation looks at
    noised = Seq(torch.full_like(ids, TINY.mask), length, tracks)
    return Batch(
        torch.arange(rows),
        {"source": noised, "target": target},
        {"seq2seq": asked},
        counts={"seq2seq": len(places)},
    )


def alone(
    model: Model, source: list[int], target: list[int], reads: int, writes: int
) -> torch.Tensor:
    """[T, V] log-probabilities of the target after its source, one row without a cache."""
    one = lambda ids, language: Seq(  # noqa: E731
        torch.tensor([ids]),
        torch.tensor([len(ids)]),
        {"language": torch.full((1, len(ids)), language)},
    )
    hidden = model(
        Batch(torch.zeros(1), {"source": one(source, reads), "target": one(target, writes)})
    ).last[0]
    return model.heads["seq2seq"](hidden).log_softmax(-1)[:, : TINY.size]


@torch.no_grad()
def written(model: Model, text: list[int], language: int, other: int, most: int) -> list[int]:
    """The likeliest token, again and again; what a row of the source should be."""
    found: list[int] = []
    while len(found) < most:
        token = int(alone(model, text, [*found, 0], language, other)[len(found)].argmax())
        if token == TINY.eos:
            break
        found.append(token)
    return [*found, TINY.eos]


@pytest.mark.parametrize("languages", [2, 3])
def test_loss_and_gradient_are_those_of_the_definition(languages: int) -> None:
    model = model_of(f"model.encoder.embedding.languages={languages}")
    objective = BackTranslation(model=model, vocab=TINY)
    lengths, spoken = [4, 6, 2, 5], [0, 1, 1, languages - 1]
    batch = batch_of(lengths, spoken)
    out = objective(model, batch)
    loss, sources = torch.zeros((), dtype=torch.float64), set()
    for row, (length, own) in enumerate(zip(lengths, spoken, strict=True)):
        text = batch.seqs["target"].ids[row, :length].tolist()
        others = [(own + 1 + step) % languages for step in range(languages - 1)]
        other = others[row % (languages - 1)]
        assert other != own
        source = written(model, text, own, other, min(int(1.3 * length + 5), 11))
        sources.add(tuple(source))
        logp = alone(model, source, text, other, own)
        loss = loss - sum(logp[t, token] for t, token in enumerate(text))
    assert len(sources) == 4
    found = out.terms["back_translation"].total
    torch.testing.assert_close(found, loss, rtol=1e-10, atol=1e-10)
    assert objective.counts(batch) == {"back_translation": sum(lengths)}
    parameters = list(model.parameters())
    pairs = zip(
        torch.autograd.grad(found, parameters), torch.autograd.grad(loss, parameters), strict=True
    )
    assert all(torch.allclose(mine, theirs, rtol=1e-9, atol=1e-9) for mine, theirs in pairs)


def test_writes_in_evaluation_mode_and_without_gradient() -> None:
    model, batch = model_of("model.encoder.embedding.dropout=0.3").train(), batch_of([5, 3], [0, 1])
    objective, seen = BackTranslation(model=model, vocab=TINY), []
    greedy = objective.search

    def watched(step: Any, start: Any) -> Any:
        seen.append((torch.is_grad_enabled(), model.training, start.logits.requires_grad))
        return greedy(step, start)

    objective.search = watched  # type: ignore[assignment]
    first, second = (objective.translate(model, batch) for _ in range(2))
    assert seen == [(False, False, False)] * 2
    assert first.ids.equal(second.ids)  # no dropout
    assert model.training
    assert not first.ids.is_inference()
    objective(model, batch).terms["back_translation"].total.backward()
    assert model.backbone.token_embedding.weight.grad is not None  # type: ignore[union-attr]


def test_under_autocast_all_weights_learn() -> None:
    """What was cast down while the text was written, without gradient, is not what the loss is
    computed with.
    """
    model = model_of().float().train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (
            BackTranslation(model=model, vocab=TINY)(model, batch_of([5, 3], [0, 1]))
            .terms["back_translation"]
            .total
        )
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_translation_is_in_the_other_language() -> None:
    model, batch = model_of(), batch_of([5, 3, 4], [0, 1, 0])
    objective = BackTranslation(model=model, vocab=TINY)
    made = objective.translate(model, batch)
    assert made.tracks["language"][:, 0].tolist() == [1, 0, 1]
    assert all(made.ids[row, length - 1] == TINY.eos for row, length in enumerate(made.length))
    before = made.ids
    with torch.no_grad():
        model.backbone.decoder.embedding.language.weight[1] *= -5
    after = objective.translate(model, batch).ids
    assert not (before[0].tolist() == after[0].tolist() and before[2].tolist() == after[2].tolist())


def test_a_spare_row_changes_nothing() -> None:
    model, whole = model_of(), batch_of([5, 3], [0, 1])
    filled = batch_of([5, 3, 0], [0, 1, 0])
    filled = replace(
        filled,
        key=torch.tensor([0, 1, -1]),
        seqs={
            n: replace(s, ids=s.ids.index_copy(0, torch.arange(2), whole.seqs[n].ids))
            for n, s in filled.seqs.items()
        },
        targets=whole.targets,
    )
    objective = BackTranslation(model=model, vocab=TINY)
    found = [objective(model, batch).terms["back_translation"].total for batch in (whole, filled)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-10)


@pytest.mark.slow  # the loss and its gradient by definition stay
def test_the_loss_falls_on_texts_of_two_languages() -> None:
    model = model_of().float()
    model.backbone.initializer(model, generator=torch.Generator().manual_seed(0))
    objective, optimizer = (
        BackTranslation(model=model, vocab=TINY),
        torch.optim.Adam(model.parameters(), lr=1e-2),
    )
    batch, losses = batch_of([6, 4, 5, 3], [0, 1, 0, 1]), []
    for _ in range(40):
        loss = objective(model, batch).terms["back_translation"].total / batch.counts["seq2seq"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


def test_what_does_not_fit_is_refused_by_name() -> None:
    def refusal(recipe: str, *words: str) -> str:
        with pytest.raises(ConfigError) as error:
            check_contract(compose("pretrain", recipe, [*SMALL, *words]))
        return str(error.value)

    assert "model.encoder.embedding.languages=0: at least 2" in refusal(
        "mass_translation", "model.encoder.embedding.languages=0"
    )
    assert "fix: model.encoder.embedding.languages=2" in refusal(
        "mass_translation", "model.encoder.embedding.languages=1"
    )
    assert "fix: 'noise=[autoencode]'" in refusal("mass_translation", "noise=[sequence_span]")
    bart = ["objective=[back_translation]", "model.encoder.embedding.languages=2"]
    assert "fix: format=sentences" in refusal("bart", *bart)
    assert "needs the language of every text" in refusal("bart", *bart, "format=sentences")
    assert "model=encoder_decoder" in refusal("gpt", "objective=[back_translation]")


def test_rows_in_a_language(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Sentences(vocab=TINY, max_length=6, min_tokens=1)
    ids = np.ones((2, 3), np.int32)
    rows = Rows(
        key=np.arange(2), seqs={"text": Seq(ids, np.array([3, 2]), {"word_start": ids > 0})}
    )
    monkeypatch.setattr(Sentences, "rows", lambda self, shards, plan, index, wanted=None: rows)
    made = InLanguage(format=inner, language=1)
    text = made.rows(None, Plan(2, {}), np.arange(2)).seqs["text"]  # type: ignore[arg-type]
    assert text.tracks["language"].tolist() == [[1] * 3] * 2
    assert text.tracks["word_start"] is rows.seqs["text"].tracks["word_start"]
    assert made.provides == inner.provides | {"tracks.language"}
    assert (made.max_length, made.copies) == (6, 1)
    assert made.languages(None) == 2  # type: ignore[arg-type]
    assert made.settings != InLanguage(format=inner, language=0).settings
    with pytest.raises(ConfigError, match=r"format.language=-1: the number of a language"):
        InLanguage(format=inner, language=-1)
    bare = copy.copy(inner)
    bare.provides = frozenset({"source", "target"})
    with pytest.raises(ConfigError, match="a format of plain text; this one gives source, target"):
        InLanguage(format=bare, language=0)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two texts of the same words, in the second each letter is the next one of the alphabet."""
    folder, draw = tmp_path_factory.mktemp("languages"), random.Random(0)
    words = ["".join(draw.choice("abcdefgh") for _ in range(3)) for _ in range(20)]
    for name, shift in (("first", 0), ("second", 8)):
        lines = [" ".join(draw.choice(words) for _ in range(5)) + "." for _ in range(120)]
        moved = ["".join(chr(ord(c) + shift) if c.isalpha() else c for c in line) for line in lines]
        (folder / f"{name}.txt").write_text("\n\n".join(moved), encoding="utf-8")
    return [f"data.sources.{name}.path={folder / name}.txt" for name in ("first", "second")]


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), ["pretrain", *words])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.slow  # the loss falls in the next test, and test_seq2seq_command.py resumes
def test_from_mass_to_translation_and_on_after_a_stop(sources: list[str], tmp_path: Path) -> None:
    common = [
        *sources,
        "format.max_length=12",
        "data.valid_share=0.1",
        "train.batch_size=4",
        "train.device=cpu",
        "train.precision=fp32",
        "train.log_every=1",
        "eval.rows=8",
    ]
    first = [
        *SIZE,
        "tokenizer.vocab_size=60",
        "objective=[seq2seq]",
        "noise=[sequence_span]",
        "train.steps=2",
        f"run.dir={tmp_path / 'mass'}",
    ]
    run("mass_translation", *common, *first)
    common += [f"init={tmp_path / 'mass'}", "train.steps=4"]
    whole, part = tmp_path / "whole", tmp_path / "part"
    said = run(
        "mass_translation", *common, "train.save_every=2", "train.keep_last=9", f"run.dir={whole}"
    )
    assert "back_translation" in said
    shutil.copytree(whole, part)
    shutil.rmtree(part / "checkpoints" / "step-4")
    run("--resume", f"run.dir={part}")
    one, other = (
        load_file(folder / "checkpoints" / "step-4" / "model.safetensors")
        for folder in (whole, part)
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_language_without_a_vector_is_refused(sources: list[str], tmp_path: Path) -> None:
    words = [
        *SMALL,
        "tokenizer.vocab_size=60",
        "data.sources.second.format.language=2",
        f"run.dir={tmp_path / 'run'}",
    ]
    said = run("mass_translation", *sources, *words, "train.steps=1", code=2)
    assert "model.encoder.embedding.languages=2: at least 3" in said


def test_labels_are_the_whole_text() -> None:
    model = model_of()
    target = Seq(np.array([[2, 5, 3, 0]]), np.array([3]), {"language": np.zeros((1, 4), np.int16)})
    rows = Rows(np.zeros(1), {"source": target, "target": target})
    assert BackTranslation(model=model, vocab=TINY).labels(rows)["seq2seq"].tolist() == [
        [2, 5, 3, IGNORE]
    ]
