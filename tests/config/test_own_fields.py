"""Parts of a plug-in that bring fields, tracks and costs of their own: each says so itself, and
plmctl believes it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.cost import cost
from plmctl.attention.patterns.base import Full, Pattern
from plmctl.attention.patterns.hops import reaches_all
from plmctl.config.build import build, plain
from plmctl.config.compose import compose
from plmctl.config.spec import thaw
from plmctl.config.texts import Feed, Texts
from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.errors import UsageError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, describe_unread, open_training_loader
from plmctl.models.base import Model
from plmctl.nn.cells.base import Cell, RowSize, Work
from plmctl.nn.env import Env, Streams
from plmctl.noise.base import Noise
from plmctl.objectives.base import Facts, Objective, Output, Term
from plmctl.runs import pretraining
from plmctl.runs.contract.contract import check_contract, find_unmeasured
from plmctl.runs.contract.stand_in import TINY
from plmctl.training.processes.world import World

PLUGIN = __name__.partition(".")[0]  # the package of this module
TONE = {
    "tracks.tone": Field("[n, T]", "int", "the tone of a syllable"),
    "targets.tone": Field("[n, T]", "int", "tone of a token, IGNORE at padding"),
}


@part_of("noise")
class Tones(Noise):
    """Every token has the tone id mod 3, beside it and as a target."""

    writes, changes, fields = frozenset({"tracks.tone", "targets.tone"}), False, TONE

    def __call__(self, rows: Rows, draws: Any) -> Rows:
        seq = rows.seqs["text"]
        tone = (seq.ids % 3).astype(np.int64)
        return rows.with_seq("text", seq.with_tracks(tone=tone)).with_targets(
            tone=np.where(seq.real, tone, IGNORE)
        )

    def capacity(self, length: int) -> dict[str, int]:
        return {"tone": length}


@part_of("objective")
class AskTone(Objective):
    """Cross-entropy of the tone at every token."""

    fields: Mapping[str, Field] = TONE
    facts = Facts(
        needs=frozenset({"text", "targets.tone"}),
        heads=frozenset({"tone"}),
        terms=frozenset({"tone"}),
    )

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"tone": batch.counts["tone"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        targets = batch.require("targets.tone")
        logits = model.heads["tone"](model(batch, state).gather(targets.index)).float()
        return Output(
            {
                "tone": Term(
                    F.cross_entropy(logits, targets.ids, ignore_index=IGNORE, reduction="sum")
                )
            }
        )


@part_of("objective")
class AskSense(AskTone):
    """The same of a track that the token directory holds, out of which it makes its target
    itself.
    """

    facts = replace(AskTone.facts, needs=frozenset({"text", "tracks.sense", "targets.tone"}))

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        return {"tone": rows.seqs["text"].tracks["sense"] % 3}


@part_of("pattern")
class SameTone(Pattern):
    """`tone[b, q] = tone[b, k]`, or the first token."""

    needs, static = frozenset({"tracks.tone"}), False

    def predicate(self, seq: Seq) -> Callable[..., Tensor]:
        tone = seq.tracks["tone"]
        return lambda b, h, q, k: (tone[b, q] == tone[b, k]) | (k == 0)


@part_of("pattern")
class SeenTone(Full):
    """Everything; keeps the tones that the last batch had."""

    uses = frozenset({"tracks.tone", "tracks.sense"})


@part_of("pattern")
class Ignored(Full):
    """Everything, and says nothing of what it reads."""


@part_of("cells")
class Mixer(Cell):
    """One matrix over the width, and one over the places; no map of torch's."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.across = nn.Parameter(torch.zeros(width, width))
        self.out = nn.Linear(width, width)

    @property
    def projection(self) -> nn.Linear:  # type: ignore[override]
        return self.out

    def forward(self, streams: Streams, env: Env) -> Tensor:
        return self.out(streams["text"] @ self.across)


@part_of("cells")
class Counted(Mixer):
    """The same, which says what it costs."""

    computes = "mixing"

    def work(self, row: RowSize) -> Work:
        return replace(super().work(row), scores=7.0 * row.tokens)


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("own") / "conf"
    head = "heads: {tone: {_target_: plmctl.heads.tag.Tag, num_classes: 3, dropout: 0.0}}\n"
    parts = {
        "noise/tones": f"# @package noise.tones\n_target_: {__name__}.Tones\n",
        "objective/tone": (
            f"# @package _global_\nobjective: {{tone: {{_target_: {__name__}.AskTone}}}}\n{head}"
        ),
        "objective/sense": (
            f"# @package _global_\nobjective: {{sense: {{_target_: {__name__}.AskSense}}}}\n{head}"
        ),
        **{
            f"pattern/{name}": f"_target_: {__name__}.{name}\n"
            for name in ("SameTone", "SeenTone", "Ignored")
        },
    }
    for name, text in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return str(folder)


@pytest.fixture
def config(conf: str, tokens_of: Callable[..., Path]) -> Callable[..., DictConfig]:
    def made(*words: str) -> DictConfig:
        small = [
            "size=tiny",
            "size.width=32",
            "size.inner_width=64",
            "format.max_length=32",
            "train.batch_size=4",
        ]
        words = (
            f"data.path={tokens_of('wordpiece')}",
            *small,
            "train.steps=1",
            "eval.rows=4",
            *words,
        )
        return compose("pretrain", "bert", words, config_dirs=[conf], plugins=[PLUGIN])

    return made


def test_an_objective_with_a_target_of_its_own(
    config: Callable[..., DictConfig], conf: str, tmp_path: Path
) -> None:
    """It trains; what gives its target in training and not in validation is said with the part's
    own words.
    """
    cfg = config(
        "noise=[tones]", "objective=[tone]", "eval.noise='${noise}'", f"run.dir={tmp_path / 'run'}"
    )
    assert pretraining.pretrain(cfg) == 0
    records = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    logged = {key for record in records for key in record}
    assert "valid/loss/tone" in logged
    assert not [key for key in logged if "bits_per_byte" in key or "perplexity" in key]
    with pytest.raises(UsageError) as caught:
        check_contract(
            config("noise=[tones]", "objective=[tone]", "eval.noise=null"), [PLUGIN], [conf]
        )
    told = (
        "needs 'targets.tone' (tone of a token, IGNORE at padding) in validation too,"
        " and eval.noise does not give it"
    )
    assert str(caught.value) == f"objective.tone: {told}\n  fix: eval.noise='${{noise}}'"
    with pytest.raises(UsageError) as caught:
        check_contract(config("noise=[token_mask]", "objective=[tone]"), [PLUGIN], [conf])
    told = (
        "needs 'targets.tone' (tone of a token, IGNORE at padding), which nothing here"
        " gives\n  fix: 'noise=[tones]'"
    )
    assert str(caught.value) == f"objective.tone: {told}"


def test_a_target_made_of_a_track_that_only_the_text_can_have(
    config: Callable[..., DictConfig], conf: str
) -> None:
    """`check_contract` raises ConfigErrors for a field that nothing can give."""
    check_contract(config("noise=[]", "objective=[sense]"), [PLUGIN], [conf])


def test_a_pattern_with_a_track_of_its_own_beside_a_question_about_the_row(
    config: Callable[..., DictConfig], conf: str, tmp_path: Path
) -> None:
    words = [
        "format=sentence_pair",
        "objective=[mlm,nsp]",
        "pattern=SameTone",
        "noise=[token_mask,tones]",
    ]
    cfg = config(*words, "eval.noise='${noise}'", f"run.dir={tmp_path / 'run'}")
    check_contract(cfg, [PLUGIN], [conf])
    assert pretraining.pretrain(cfg) == 0
    assert SameTone().looks_ahead()
    both = SameTone() & Full()
    assert both.needs == {"tracks.tone"}
    assert reaches_all(both, 0, (0, 1), 32)


@pytest.mark.parametrize(
    ("pattern", "kept", "said"),
    [
        ("SeenTone", {"tone"}, []),
        (
            "Ignored",
            set(),
            ["tracks.tone is left out: no part says in `needs` or `uses` that it reads it"],
        ),
    ],
)
def test_a_track_that_a_part_may_read(
    pattern: str, kept: set[str], said: list[str], config: Callable[..., DictConfig]
) -> None:
    """Where a part says so it is in every batch; where none does, that is said. It need not be
    there.
    """
    for noise in ("[token_mask,tones]", "[token_mask]"):
        cfg = config(f"pattern={pattern}", f"noise={noise}", "objective=[mlm]")
        corpus, tones = open_corpus(Texts.of(cfg)), "tones" in noise
        with torch.device("meta"):
            model = build_model(
                cfg, vocab_size=corpus.vocab.size, vocab=corpus.vocab, plugins=[PLUGIN]
            )
        fields = BatchFields.by(model)
        fields = replace(fields, needs=fields.needs | {"targets.mlm"})
        with open_training_loader(Feed.of(cfg, 0), corpus, World(), fields) as loader:
            (batch,) = next(loader)
        assert set(batch.text.tracks) & {"tone", "sense"} == (kept if tones else set())
        assert describe_unread(loader.sources["text"], fields.kept) == (said if tones else [])


@pytest.mark.parametrize(
    ("cell", "kind", "scores"), [("Mixer", "Mixer", 0.0), ("Counted", "mixing", 7.0)]
)
def test_a_cell_says_what_it_costs(
    cell: str, kind: str, scores: float, config: Callable[..., DictConfig]
) -> None:
    content = thaw(config("model.stack.layout=af*1 m*1"))
    content["model"]["stack"]["cells"]["m"] = {
        "_target_": f"{__name__}.{cell}",
        "_partial_": True,
        "width": 32,
    }
    with torch.device("meta"):
        model = build_model(content, vocab_size=TINY.size, vocab=TINY, plugins=[PLUGIN])
    found = cost(model, length=16, predicted={"mlm": 0.15}).macs_per_token
    assert found[kind] == 2 * 32 * 32
    assert found["feed-forward"] == 2 * 32 * 64
    assert found["attention"] == 4 * 32 * 32
    assert found["attention scores"] == 2 * 16 * 32 + scores


def test_rows_without_the_track_of_a_pattern_are_refused() -> None:
    rows = Seq(torch.zeros(1, 4, dtype=torch.long), torch.tensor([4]))
    with pytest.raises(
        UsageError, match=r"^this model's pattern reads tracks\.tone, which these rows do not have$"
    ):
        (SameTone() & Full()).dense(rows)


def test_validation_names_a_field_by_the_words_of_the_noise_of_training() -> None:
    """The objective reads it, and introduces nothing."""

    class Reads(Objective):
        facts = Facts(needs=frozenset({"targets.tone"}), terms=frozenset({"tone"}))

    format = build(plain(compose("pretrain", "bert").format), {"vocab": TINY}, path="format")
    (error,) = find_unmeasured(format, {}, {"mine": Reads()}, trained={"tones": Tones()})
    assert "needs 'targets.tone' (tone of a token, IGNORE at padding)" in str(error)
    assert "of no part introduces" not in str(error)


@part_of("cells")
class Plain(Cell):
    """A cell with one setting."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, width)


@pytest.mark.parametrize(
    ("letter", "layout"), [("a", "qf*${size.num_layers}"), ("f", "aq*${size.num_layers}")]
)
def test_a_taken_letter_is_one_mistake(letter: str, layout: str) -> None:
    """Its fix composes in its place."""
    target = f"{{_target_:{Plain.__module__}.Plain,_partial_:true}}"
    own = f"model.stack.cells.{letter}={target}"
    with pytest.raises(UsageError) as caught:
        compose("pretrain", "bert", ["size=tiny", own], plugins=[PLUGIN])
    assert str(caught.value).startswith(f"model.stack.cells.{letter}=")
    assert f"'{letter}' is another cell's" in str(caught.value)
    words = shlex.split(caught.value.fix)  # type: ignore[attr-defined]
    assert words == [f"model.stack.layout={layout}", f"+model.stack.cells.q={target}"]
    cfg = compose("pretrain", "bert", ["size=tiny", *words], plugins=[PLUGIN])
    assert cfg.model.stack.layout == layout.replace("${size.num_layers}", "2")
