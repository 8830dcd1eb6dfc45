"""WKLM's objective against its formula as a loop over mentions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from plmctl.config.compose import compose
from plmctl.config.texts import Feed, Texts
from plmctl.core.batch import Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError, UsageError
from plmctl.data.shards import read_manifest
from plmctl.heads.lm import LMHead
from plmctl.heads.mention import MentionHead
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, open_training_loader
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.objectives.wklm import WKLM
from plmctl.runs.contract.contract import check_contract
from plmctl.training.processes.world import World
from tests.knowledge.tables import write_knowledge

W = 4
SPANS = [[0, 1, 2, 1], [0, 4, 1, 0], [1, 2, 3, 0], [1, 6, 1, 1]]


class _States(Backbone):
    """States that are parameters: their gradient shows which places a loss reads."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.states = nn.Parameter(torch.randn(2, 8, W))
        self.token_embedding = nn.Embedding(9, W)

    def forward(
        self, batch: Batch, state: object = None, record: frozenset[str] = frozenset()
    ) -> Hidden:
        return Hidden(self.states)


def batch_of(spans: list[list[int]]) -> Batch:
    ids = np.ones((2, 8), np.int64)
    table = np.array(spans, np.int64).reshape(-1, 4)
    rows = Rows(np.arange(2), {"text": Seq(ids, np.array([8, 8]))}, spans={"judged": table})
    return collate(rows, {})


def model_of(**settings: object) -> Model:
    backbone = _States()
    table = backbone.token_embedding
    mlm = LMHead(width=W, vocab_size=9, token_embedding=table, tied=True, transform=True, bias=True)
    head = MentionHead(width=W, token_embedding=table, dropout=0.0, **settings)
    for parameter in [*head.parameters(), *mlm.dense.parameters()]:
        nn.init.normal_(parameter)
    return Model(backbone=backbone, heads={"mlm": mlm, "mention": head}).double()


def literal(model: Model, places: Callable[[int, int], list[int]]) -> Tensor:
    """The sum over mentions, each by itself."""
    head, total = model.heads["mention"], torch.zeros((), dtype=torch.float64)
    for row, start, length, label in SPANS:
        states = [model.backbone.states[row, place] for place in places(start, length)]
        if head.states == "mlm_transform":
            states = [model.heads["mlm"].transform_states(state) for state in states]
        logits = head.linear.weight @ torch.cat(states) + head.linear.bias
        original = torch.softmax(logits, 0)[1]
        total = total - (torch.log(original) if label else torch.log(1 - original))
    return total


PLACES: dict[str, Callable[[int, int], list[int]]] = {
    "boundary": lambda start, length: [start - 1, start + length],
    "start": lambda start, length: [start],
    "start_end": lambda start, length: [start, start + length - 1],
}


@pytest.mark.parametrize("states", ["mlm_transform", "last_layer"])
@pytest.mark.parametrize("representation", sorted(PLACES))
def test_loss_and_gradients_are_those_of_the_formula(representation: str, states: str) -> None:
    one = model_of(representation=representation, states=states)
    two = model_of(representation=representation, states=states)
    two.load_state_dict(one.state_dict())
    out = WKLM()(one, batch_of(SPANS))
    expected = literal(two, PLACES[representation])
    torch.testing.assert_close(out.terms["wklm"].total, expected, atol=1e-12, rtol=1e-12)
    out.terms["wklm"].total.backward()
    expected.backward()
    for (name, mine), (_, theirs) in zip(
        one.named_parameters(), two.named_parameters(), strict=True
    ):
        assert (mine.grad is None) == (theirs.grad is None), name
        if mine.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-12, rtol=1e-12, msg=name)


def test_what_is_logged_counts_both_kinds() -> None:
    model = model_of(states="last_layer")
    head = model.heads["mention"]
    nn.init.zeros_(head.linear.weight)
    with torch.no_grad():
        head.linear.bias.copy_(torch.tensor([0.0, 1.0]))  # all are called originals
    objective, batch = WKLM(), batch_of(SPANS)
    assert objective.counts(batch) == {"wklm": 4}
    logs = {
        name: (int(total), int(count))
        for name, (total, count) in objective(model, batch).logs.items()
    }
    assert logs == {
        "acc/wklm": (2, 4),
        "replaced": (2, 4),
        "recall/replaced": (0, 2),
        "recall/original": (2, 2),
    }


def test_without_mentions_nothing_is_asked() -> None:
    out, batch = WKLM()(model_of(), batch_of([])), batch_of([])
    assert out.terms == {}
    assert WKLM().counts(batch) == {"wklm": 0}


def test_another_place_or_state_is_refused() -> None:
    with pytest.raises(ConfigError, match="boundary, start or start_end"):
        MentionHead(width=W, token_embedding=None, representation="middle")
    with pytest.raises(ConfigError, match="mlm_transform or last_layer"):
        MentionHead(width=W, token_embedding=None, states="first")


def test_it_needs_its_noise_and_its_heads() -> None:
    words = ["objective=[mlm,wklm]", "size=tiny"]
    with pytest.raises(UsageError, match=r"(?s)spans\.judged.*noise=\[.*entity_replace"):
        check_contract(compose("pretrain", "bert", words))
    assert set(check_contract(compose("pretrain", "wklm")).heads) == {"mlm", "mention"}


def open_loader(words: list[str]) -> Batch:
    cfg = compose("pretrain", "wklm", ["size=tiny", "train.batch_size=4", *words])
    corpus, fields = open_corpus(Texts.of(cfg)), BatchFields(frozenset({"text", "spans.judged"}))
    with open_training_loader(Feed.of(cfg, 0), corpus, World(), fields) as loader:
        return next(loader)[0]


@pytest.mark.slow  # what its noise and heads refuse stays
def test_tokens_of_other_entities_are_refused(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    tokens = tokens_of("wordpiece", spans=("entity",))
    words = [f"data.path={tokens}", "format.max_length=32"]
    assert len(open_loader(words).spans["judged"])
    other = write_knowledge(tmp_path / "other")
    what = r"(?s)the ids of these tokens mean.*fix: .*knowledge="
    with pytest.raises(ConfigError, match=what):
        open_loader([*words, f"noise.entity_replace.knowledge={other}"])
    with pytest.raises(ConfigError, match=what):
        open_corpus(
            Texts.of(
                compose("pretrain", "ernie_thu", [*words, f"model.entities.knowledge={other}"])
            )
        )
    same = read_manifest(tokens)["knowledge"]["path"]
    open_loader([*words, f"noise.entity_replace.knowledge={same}"])
