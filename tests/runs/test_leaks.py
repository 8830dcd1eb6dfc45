"""One leak probe over every recipe: no state depends on an input that its pattern forbids, through
the whole model.

The gradient of every predicting state by every token that the model looks up is exactly zero where
the definition says no, and not zero where it says yes. Definitions are written here from what rows
carry, not from the code of patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.config.compose import compose
from plmctl.config.recipes import recipes_dir
from plmctl.config.texts import Feed, Texts
from plmctl.core.batch import Batch, Seq
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, open_training_loader
from plmctl.models.base import Model
from plmctl.nn.adaptive import AdaptiveTable
from plmctl.nn.tables import TokenTable
from plmctl.training.processes.world import World
from tests.test_recipes import SMALL, tokenizer_of

# (row, place of the state, place of the token) -> may the one depend on the other?
Sees = Callable[[int, int, int], bool]
TRANSLATORS = ("transformer", "lite_transformer", "evolved_transformer", "universal_transformer")
EXTRA = {
    **{key: ["format.target_length=24"] for key in (*TRANSLATORS, "cove")},
    # the probe goes back from every state
    "reformer": ["model.stack.reversible=false", "model.stack.join=mean"],
    "reformer_translation": [
        "format.target_length=24",
        *(f"model.{end}.stack.reversible=false" for end in ("encoder", "decoder")),
    ],
    # what is far comes through the global token of a document, in two layers
    "longformer": ["pattern.parts.0.reach=1"],
    "big_bird": ["pattern.block=4", "pattern.random=1"],
    "longformer_char": ["train.stages=[]"],
}
UPDATES = 6  # of a recipe with several sources, so that each is met


@dataclass
class Looked:
    """One table's look-up: what was asked, and a leaf in place of the answer."""

    ids: Tensor
    leaf: Tensor


@contextmanager
def looked_up(model: Model) -> Iterator[list[Looked]]:
    """Every look-up of token embeddings, in order; the embeddings become leaves of the graph."""
    found: list[Looked] = []

    def replaced(module: nn.Module, given: tuple[Tensor, ...], answer: Tensor) -> Tensor:
        leaf = answer.detach().requires_grad_()
        found.append(Looked(given[0], leaf))
        return leaf

    kinds = (TokenTable, AdaptiveTable)
    tables = [module for module in model.backbone.modules() if isinstance(module, kinds)]
    hooks = [table.register_forward_hook(replaced) for table in tables]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def together(seq: Seq, row: int, a: int, b: int) -> bool:
    """Two tokens of one document, both real."""
    if max(a, b) >= int(seq.length[row]):
        return False
    document = seq.tracks.get("document")
    return document is None or bool(document[row, a] == document[row, b])


def full(batch: Batch) -> Sees:
    return lambda row, q, k: together(batch.text, row, q, k)


def causal(batch: Batch) -> Sees:
    return lambda row, q, k: k <= q and together(batch.text, row, q, k)


def unilm(batch: Batch) -> Sees:
    segment = batch.text.tracks["segment"]
    rules: dict[int, Callable[[int, int, int], bool]] = {
        0: lambda row, q, k: True,
        1: lambda row, q, k: True,
        2: lambda row, q, k: k <= q,
        3: lambda row, q, k: k >= q,
        4: lambda row, q, k: int(segment[row, k]) == 4,
        5: lambda row, q, k: int(segment[row, k]) == 4 or k <= q,
    }
    return lambda row, q, k: (
        together(batch.text, row, q, k) and rules[int(segment[row, q])](row, q, k)
    )


def two_modes(batch: Batch) -> Sees:
    segment = batch.text.tracks["segment"]
    return lambda row, q, k: (
        together(batch.text, row, q, k) and (k <= q or int(segment[row, q]) != 2)
    )


def crossing(source: Seq, target: Seq) -> Sees:
    """All of the source, of packed documents the same one."""

    def sees(row: int, q: int, k: int) -> bool:
        if k >= int(source.length[row]):
            return False
        both = source.tracks.get("document"), target.tracks.get("document")
        return both[0] is None or both[1] is None or bool(both[1][row, q] == both[0][row, k])

    return sees


ONE_STACK: dict[str, Callable[[Batch], Sees]] = {
    **dict.fromkeys(
        (
            "bert",
            "roberta",
            "albert",
            "structbert",
            "sensebert",
            "sentilare",
            "libert",
            "ernie_baidu",
            "wklm",
            "electra",
            "modernbert",  # its first layer sees all
            "spanbert",
            "mobilebert",
            "simcse",
            "tsdae",
            "infoword",
            "tlm",
            "xlm",
        ),
        full,
    ),
    **dict.fromkeys(
        ("modern_encoder", "distilbert", "minilm", "tinybert", "longformer", "big_bird"), full
    ),
    **dict.fromkeys(
        ("gpt", "gpt2", "reformer", "sparse_transformer", "transformer_xl", "transformer_xl_char"),
        causal,
    ),
    **dict.fromkeys(("diet", "longformer_char", "gpt3"), causal),
    "unilm": unilm,
    "babylm_hybrid": two_modes,
    "babylm_causal": causal,
    **dict.fromkeys([f"babylm_{kind}" for kind in ("masked", "replaced", "adaptive", "elc")], full),
}

TWO_STACKS = [
    *(*TRANSLATORS, "cove", "bart", "bart_translation", "mass", "mass_translation", "t5"),
    *("mbart", "pegasus", "reformer_translation"),
]
# tests/models/test_mpnet.py, tests/models/test_funnel.py, tests/nn/test_fourier.py
OWN_TEST = ["xlnet", "elmo", "mpnet", "funnel", "fnet"]


def batches(recipe: str, tokens_of: Callable[..., Path], *more: str) -> tuple[Model, list[Batch]]:
    words = [
        *SMALL,
        "format.max_length=24",
        *EXTRA.get(recipe, []),
        "train.batch_size=4",
        *tokenizer_of(recipe, tokens_of),
        *more,
    ]
    cfg = compose("pretrain", recipe, words)
    corpus = open_corpus(Texts.of(cfg))
    model = (
        build_model(cfg, vocab_size=corpus.vocab.size, vocab=corpus.vocab, seed=0).double().eval()
    )
    # first weights are small: gradients through two softmaxes must not vanish
    for parameter in model.parameters():
        torch.nn.init.normal_(
            parameter, std=0.3, generator=torch.Generator().manual_seed(parameter.numel())
        )
    objective = build_objective(cfg.objective, model, corpus.vocab, seed=cfg.seed)
    with open_training_loader(
        Feed.of(cfg, 0), corpus, World(), BatchFields.by(model, objective)
    ) as loader:
        found = [next(loader)[0] for _ in range(UPDATES if cfg.data.sources else 1)]
    return model, list({batch.source: batch for batch in found}.values())


def probe(states: Tensor, leaf: Tensor, sees: Sees, places: list[list[int]]) -> int:
    """Check every state `[row, place]` of `places[row]` against every token of the batch; how
    many pairs were forbidden.
    """
    weights = torch.randn(
        states.shape[-1], dtype=states.dtype, generator=torch.Generator().manual_seed(1)
    )
    forbidden = 0
    for row, chosen in enumerate(places):
        for q in chosen:
            (grad,) = torch.autograd.grad(states[row, q] @ weights, leaf, retain_graph=True)
            reached = grad.abs().amax(-1) > 0  # [B, T]
            allowed = torch.zeros_like(reached)
            allowed[row] = torch.tensor([sees(row, q, k) for k in range(reached.shape[1])])
            assert torch.equal(reached, allowed), (row, q, reached[row], allowed[row])
            forbidden += int((~allowed).sum())
    return forbidden


# a recipe without a rule of its own: that of its pattern
NAMED = {*ONE_STACK, *TWO_STACKS, *OWN_TEST}
RULES = {"Full": full, "Causal": causal}
ONE_STACK |= {
    file.stem: RULES[compose("pretrain", file.stem).pattern._target_.rpartition(".")[2]]
    for file in recipes_dir().glob("*.yaml")
    if file.stem not in NAMED
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("recipe", sorted(ONE_STACK))
def test_one_stack(recipe: str, tokens_of: Callable[..., Path]) -> None:
    model, found = batches(recipe, tokens_of)
    for batch in found:
        with looked_up(model) as looks:
            states = model(batch).last
        (look,) = looks
        length = batch.text.length.tolist()
        assert (
            probe(
                states, look.leaf, ONE_STACK[recipe](batch), [list(range(0, n, 3)) for n in length]
            )
            > 0
        )


BANDED = ["kernel=banded", "kernel.block=4"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("recipe", ["bert", "roberta", "gpt"])
@pytest.mark.parametrize("kernel", [["kernel=dense"], BANDED])
def test_windows(recipe: str, kernel: list[str], tokens_of: Callable[..., Path]) -> None:
    """Layer upon layer a token hears of those one window further away, and of no others."""
    causal_too = recipe == "gpt"
    near = "{_target_: plmctl.attention.patterns.window.Window, reach: 2}"
    past = "{_target_: plmctl.attention.patterns.causal.Causal}"
    joined = "pattern._target_=plmctl.attention.patterns.base.And"
    parts = f"pattern.parts=[{past},{near}]" if causal_too else f"pattern.parts=[{near}]"
    window = ["pattern=longformer", joined, parts]
    model, found = batches(recipe, tokens_of, *window, *kernel)
    for batch in found:
        whole = (causal if causal_too else full)(batch)
        reach = 2 * model.backbone.num_layers

        def sees(row: int, q: int, k: int, whole: Sees = whole, reach: int = reach) -> bool:
            return abs(q - k) <= reach and whole(row, q, k)

        with looked_up(model) as looks:
            states = model(batch).last
        (look,) = looks
        places = [list(range(0, n, 3)) for n in batch.text.length.tolist()]
        assert probe(states, look.leaf, sees, places) > 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("recipe", TWO_STACKS)
def test_two_stacks(recipe: str, tokens_of: Callable[..., Path]) -> None:
    """The state at place t of the target has read what was written before t, the whole source,
    and not y_t.
    """
    model, found = batches(recipe, tokens_of)
    for batch in found:
        assert_reads_source_and_past(model, batch)


def assert_reads_source_and_past(model: Model, batch: Batch) -> None:
    source, target = batch.seqs["source"], batch.seqs["target"]
    with looked_up(model) as looks:
        states = model(batch).last
    written = next(
        look
        for look in looks
        if look.ids.shape == target.ids.shape and not torch.equal(look.ids, source.ids)
    )
    read = next(look for look in looks if look is not written)
    assert torch.equal(read.ids, source.ids)
    for row, n in enumerate(target.length.tolist()):
        for t in range(1, n):
            # y_t itself is nowhere: the decoder reads the token before
            if together(target, row, t - 1, t):
                assert int(written.ids[row, t]) == int(target.ids[row, t - 1])
    places = [list(range(0, n, 3)) for n in target.length.tolist()]
    assert (
        probe(
            states, written.leaf, lambda row, q, k: k <= q and together(target, row, q, k), places
        )
        > 0
    )
    assert probe(states, read.leaf, crossing(source, target), places) > 0


def test_two_streams(tokens_of: Callable[..., Path]) -> None:
    """XLNet: content sees its own rank and what ranks before, a query, which is to be predicted,
    only what ranks before.
    """
    model, (batch,) = batches("xlnet", tokens_of)
    order, asked = batch.text.tracks["order"], batch.targets["plm"]
    with looked_up(model) as looks:
        hidden = model(batch)
    leaf = looks[0].leaf

    def content(row, q, k):
        return bool(order[row, k] <= order[row, q]) and together(batch.text, row, q, k)

    assert (
        probe(
            hidden.last, leaf, content, [list(range(0, n, 3)) for n in batch.text.length.tolist()]
        )
        > 0
    )
    places = [divmod(int(place), order.shape[1]) for place in asked.index[: asked.count]]
    weights = torch.randn(
        hidden.last.shape[-1], dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    for slot, (row, q) in enumerate(places):
        (grad,) = torch.autograd.grad(
            hidden.streams["query"][slot] @ weights, leaf, retain_graph=True
        )
        allowed = torch.zeros(order.shape, dtype=torch.bool)
        allowed[row] = (order[row] < order[row, q]) & batch.text.real[row]
        assert torch.equal(grad.abs().amax(-1) > 0, allowed)
        assert not allowed[row, q]


def test_two_directions(tokens_of: Callable[..., Path]) -> None:
    """ELMo: forward states have read no later word, backward states, on the text from its end,
    neither.
    """
    model, (batch,) = batches("elmo", tokens_of)
    # [2, B, T, W / 2], of the text and of its reverse
    x = model.backbone.embed(batch).detach().requires_grad_()
    hidden = model.backbone.encode(x, batch)
    for number, (stream, name) in enumerate((("forward", "text"), ("backward", "reverse"))):
        states, seq = hidden.streams[stream], batch.seqs[name]
        weights = torch.randn(
            states.shape[-1], dtype=torch.float64, generator=torch.Generator().manual_seed(1)
        )
        for row, n in enumerate(seq.length.tolist()):
            for q in range(0, n, 3):
                (grad,) = torch.autograd.grad(states[row, q] @ weights, x, retain_graph=True)
                allowed = torch.zeros(x.shape[:3], dtype=torch.bool)
                allowed[number, row] = torch.tensor(
                    [k <= q and together(seq, row, q, k) for k in range(seq.ids.shape[1])]
                )
                assert torch.equal(grad.abs().amax(-1) > 0, allowed)


def test_every_recipe_is_probed() -> None:
    assert {path.stem for path in recipes_dir().glob("*.yaml")} == {
        *ONE_STACK,
        *TWO_STACKS,
        *OWN_TEST,
    }
