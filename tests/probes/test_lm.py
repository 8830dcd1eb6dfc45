"""Perplexities: every token once with the promised context, a uniform model, and the words of
the definition as loops.
"""

import copy
import functools
import math

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.heads.lm import LMHead
from plmctl.models.base import Hidden
from plmctl.noise.autoencode import Autoencode
from plmctl.noise.token_mask import TokenMask
from plmctl.noise.whole_word_mask import WholeWordMask
from plmctl.probes.dynamic import RMSAdaptation, SGDAdaptation
from plmctl.probes.lm import LanguageModel, Text
from plmctl.probes.windows import causal_windows

DOCUMENTS = [
    "the cat sat on the mat and the dog sat on the cat, said the mouse.",
    "Why? Nobody knew why; 你好 to all.",
]


class Tiny(torch.nn.Module):
    """States that depend on the token, its place and (unless causal) on the mean of the row;
    `max_length` like a backbone.
    """

    streams, writes = frozenset(), "text"

    def __init__(self, head: str, causal: bool, spread: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.token = torch.nn.Embedding(500, 8)
        self.token.weight.data.mul_(spread)
        kind = {
            "width": 8,
            "vocab_size": 500,
            "token_embedding": self.token,
            "transform": False,
            "bias": False,
        }
        self.heads = torch.nn.ModuleDict(
            {head: LMHead(tied=True, about="next" if causal else "text", **kind)}
        )
        self.causal, self.backbone, self.max_length = causal, self, 16

    def fresh_state(self, rows, device, memory=None):
        return None

    def forward(self, batch, state=None, record=frozenset()):
        x = self.token(batch.text.ids) * batch.text.real[..., None]
        sums = x.cumsum(1) if self.causal else x.sum(1, keepdim=True).expand_as(x)
        return Hidden(sums + torch.arange(x.shape[1])[None, :, None] * 0.05)


def _measure(model, tokenizer, documents=DOCUMENTS, batch_size=3, **settings):
    noise = functools.partial(
        TokenMask, vocab=tokenizer.vocab, rate=0.15, mask_share=1.0, random_share=0.0
    )
    part = LanguageModel(noise=noise, **settings)
    with torch.no_grad():
        text = Text.of(documents, tokenizer)
        return text, part.score(
            model, text, tokenizer.vocab, batch_size=batch_size, device=torch.device("cpu")
        )


@pytest.mark.parametrize(("window", "stride"), [(8, 4), (8, 7), (8, 1), (16, 8)])
@pytest.mark.parametrize("length", [1, 2, 8, 9, 10, 40])
def test_every_token_is_asked_once_with_context(length, window, stride):
    asked = []
    for place, (ids, target) in enumerate(causal_windows(list(range(length)), window, stride)):
        assert len(ids) <= window
        hits = [i for i, t in enumerate(target) if t != IGNORE]
        assert all(target[i] == ids[i] + 1 for i in hits)
        assert place == 0 or hits[0] >= window - stride - 1
        asked += [target[i] for i in hits]
    assert asked == list(range(1, length))


@pytest.mark.parametrize(
    ("head", "name"), [("clm", "perplexity_per_token"), ("mlm", "pseudo_perplexity")]
)
def test_a_uniform_model_has_the_perplexity_of_the_vocabulary(toy, head, name):
    _, found = _measure(Tiny(head, head == "clm", spread=0.0), toy)
    assert found[name] == pytest.approx(500, rel=1e-5)


def test_documents_and_the_part_of_a_pseudo_perplexity_are_named(toy):
    texts = ["one line\n\n", "two\nlines"]
    assert Text.of(texts, toy).describe().startswith("2 documents of 3 lines; a blank line")
    assert Text.of(texts[:1], toy).describe().startswith("1 document of 1 line;")
    text, found = _measure(Tiny("mlm", causal=False), toy, pseudo_tokens=5)
    shown = ["masked_perplexity", "pseudo_perplexity", "pseudo_tokens"]
    assert [*found][:3] == shown  # of the metrics, tables of sweeps have three
    part = f"the first 5 of {text.tokens} tokens; task.pseudo_tokens=null takes all"
    assert LanguageModel._describe_pseudo(5, text.tokens) == part
    assert LanguageModel._describe_pseudo(7, 7) == "all 7 tokens"


def test_units_of_a_causal_model(gpt_toy):
    text, found = _measure(Tiny("clm", causal=True), gpt_toy)
    assert found["scored_tokens"] == text.tokens == found["tokens"]  # bos is read, not counted
    nll = math.log(found["perplexity_per_token"]) * text.tokens
    joined = "".join(DOCUMENTS)
    assert found["perplexity_per_word"] == pytest.approx(
        math.exp(nll / sum(len(d.split()) for d in DOCUMENTS))
    )
    assert found["bits_per_character"] == pytest.approx(nll / math.log(2) / len(joined))
    assert found["bits_per_byte"] == pytest.approx(nll / math.log(2) / len(joined.encode()))


@pytest.mark.parametrize(
    ("documents", "spaced"),
    [
        (DOCUMENTS, True),
        (["我们今天去学校。", "他们不去。"], False),  # short lines, too
        (["ภาษาไทยไม่มีช่องว่าง"], False),
        (["한국어에는 띄어쓰기가 있다."], True),
    ],
)
def test_words_are_counted_where_spaces_part_them(gpt_toy, documents, spaced):
    text, found = _measure(Tiny("clm", causal=True), gpt_toy, documents)
    assert text.spaced is spaced
    assert [name in found for name in ("perplexity_per_word", "words")] == [spaced, spaced]
    assert found["bits_per_character"] > 0


def test_a_noise_that_does_not_fit_the_task_is_told(toy):
    """One that reads what the rows of this task lack, and one that asks for no token."""
    text, model = Text.of(DOCUMENTS, toy), Tiny("mlm", causal=False)

    def measure(kind, **settings):
        part, device = LanguageModel(noise=lambda: kind(**settings)), torch.device("cpu")
        part.score(model, text, toy.vocab, batch_size=3, device=device)

    with pytest.raises(ConfigError, match=r"WholeWordMask .* reads 'tracks\.word_start', but"):
        measure(WholeWordMask, vocab=toy.vocab, rate=0.15)
    with pytest.raises(ConfigError, match=r"(?s)task\.noise: a noise that hides.*=token_mask"):
        measure(Autoencode)


def test_pseudo_perplexity_hides_one_token_at_a_time(toy):
    model = Tiny("mlm", causal=False)
    text, found = _measure(model, toy, window=16)
    total = 0.0
    for ids in text.ids:
        for start in range(0, len(ids), 14):
            row = [2, *ids[start : start + 14], 3]
            for place in range(1, len(row) - 1):
                hidden = torch.tensor([*row[:place], 4, *row[place + 1 :]])
                state = model.token(hidden).sum(0) + place * 0.05
                total -= torch.log_softmax(state @ model.token.weight.T, -1)[row[place]].item()
    assert found["pseudo_perplexity"] == pytest.approx(math.exp(total / text.tokens), rel=1e-4)
    assert _measure(model, toy, window=16, pseudo_tokens=5)[1]["pseudo_tokens"] == 5


def test_the_mask_is_fixed(toy):
    first, again = (
        _measure(Tiny("mlm", causal=False), toy)[1]["masked_perplexity"] for _ in range(2)
    )
    other = _measure(Tiny("mlm", causal=False), toy, seed=1)[1]["masked_perplexity"]
    assert first == again != other
    assert np.isfinite(first)


TALE = [
    "the cat sat",
    "a",
    "on the mat and the dog sat on the cat, said the mouse",
    "why? nobody knew why; but all",
    "so it is",
]


@pytest.fixture(scope="module")
def remembering():
    """Transformer-XL, trained with rows of 6 and a memory of 5."""
    small = [
        "size=tiny",
        "size.width=8",
        "size.num_heads=2",
        "size.inner_width=12",
        "format.max_length=6",
        "model.memory=5",
    ]
    made = (
        build_model(compose("pretrain", "transformer_xl", small), vocab_size=500, seed=0)
        .double()
        .eval()
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(
                0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            )
    return made


def _losses(model, ids, state, goes_on):
    """(the loss of each token but the first, what is remembered) of one row."""
    row = Seq(torch.tensor([ids[:-1]]), torch.tensor([len(ids) - 1]), full=True)
    with torch.no_grad():
        hidden = model(
            Batch(torch.arange(1), {"text": row}, values={"continues": torch.tensor([goes_on])}),
            state,
        )
        logits = model.heads["clm"](hidden.last[0])
    return (
        torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum").item(),
        hidden.state,
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("memory", [2, 5, 9, None])
@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_memory_goes_on_inside_a_document_as_in_a_loop(remembering, toy, memory, batch_size):
    text, found = _measure(remembering, toy, TALE, batch_size, memory=memory, trained_length=6)
    total = 0.0
    for ids in text.ids:
        whole, state = (
            [3, *ids],
            remembering.backbone.fresh_state(
                1, torch.device("cpu"), 5 if memory is None else memory
            ),
        )
        for start in range(0, len(ids), 6):
            loss, state = _losses(remembering, whole[start : start + 7], state, start > 0)
            total += loss
    assert found["perplexity_per_token"] == pytest.approx(math.exp(total / text.tokens), rel=1e-9)
    assert (found["scored_tokens"], found["window"], found["memory"]) == (
        text.tokens,
        6,
        memory or 5,
    )


def test_a_memory_of_the_whole_text_is_one_long_row(remembering, toy):
    text, found = _measure(remembering, toy, TALE, stream=True, memory=200, window=7)
    ids = [3, *(token for document in text.ids for token in (*document, 3))]
    total, _ = _losses(remembering, ids, None, goes_on=False)
    assert found["scored_tokens"] == text.tokens + len(TALE)  # what ends a document is asked, too
    assert found["perplexity_per_token"] == pytest.approx(
        math.exp(total / found["scored_tokens"]), rel=1e-9
    )
    assert found["perplexity_per_word"] == pytest.approx(math.exp(total / text.words), rel=1e-9)
    without = _measure(remembering, toy, TALE, stream=True, memory=0, window=7)[1]
    assert without["stride"] == 3  # windows overlap
    assert "memory" not in without


def test_distances_of_evaluation_replace_those_of_training(remembering, toy):
    """As a model that was made with them; afterwards it is what it was."""
    settings = {"memory": 9, "stream": True, "window": 4}
    as_trained = _measure(remembering, toy, TALE, **settings)[1]
    found = _measure(remembering, toy, TALE, same_length=True, clamp_len=3, **settings)[1]
    assert (found["same_length"], found["clamp_len"], found["memory"]) == (1, 3, 9)
    assert "clamp_len" not in as_trained
    backbone = remembering.backbone
    assert (backbone.same_length, backbone.clamp_len) == (False, None)
    backbone.same_length, backbone.clamp_len = True, 3
    try:
        expected = _measure(remembering, toy, TALE, **settings)[1]
    finally:
        backbone.same_length, backbone.clamp_len = False, None
    assert found == expected
    assert found["perplexity_per_token"] != as_trained["perplexity_per_token"]


def _adapt(model, rule, losses, train=()):
    """The summed loss of windows, each with the weights that those before it left: the formula."""
    weights = list(model.parameters())
    first = [weight.detach().clone() for weight in weights]
    squares = [torch.zeros_like(weight) for weight in weights]
    for loss in train:
        total, count = loss()
        for square, gradient in zip(
            squares, torch.autograd.grad(total / count, weights), strict=True
        ):
            square += gradient**2 / len(train)
    sizes = [square.sqrt() for square in squares]
    mean = torch.cat([size.flatten() for size in sizes]).mean()
    summed = 0.0
    for loss in losses:
        total, count = loss()
        summed += total.item()
        gradients = torch.autograd.grad(total / count, weights)
        with torch.no_grad():
            for weight, start, gradient, size in zip(weights, first, gradients, sizes, strict=True):
                step = gradient / (size + rule["eps"]) if train else gradient
                decay = rule.get("decay", 0.0)
                if rule.get("scaled_decay"):
                    decay = torch.clamp(decay * size / mean, max=1)
                weight += decay * (start - weight) - rule["lr"] * step
    return summed


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "rule",
    [
        {"lr": 0.1},
        {"lr": 0.1, "decay": 0.3},
        {"lr": 1e-3, "decay": 0.1, "eps": 1e-4},
        {"lr": 1e-3, "decay": 0.1, "eps": 1e-4, "scaled_decay": True},
    ],
)
def test_dynamic_evaluation_is_the_formula(remembering, toy, rule):
    kind = RMSAdaptation if "eps" in rule else SGDAdaptation
    more = {"train_path": "train.txt"} if "eps" in rule else {}
    settings = {"memory": 5, "window": 6, "stream": True}
    text, train = Text.of(TALE, toy), Text.of(DOCUMENTS, toy)
    before = {name: weight.clone() for name, weight in remembering.state_dict().items()}
    noise = functools.partial(TokenMask, vocab=toy.vocab, rate=0.15)
    part = LanguageModel(noise=noise, dynamic=kind(**rule, **more), **settings)
    with torch.no_grad():
        found = part.score(
            remembering,
            text,
            toy.vocab,
            batch_size=8,
            device=torch.device("cpu"),
            train=train if more else None,
        )
    for name, weight in remembering.state_dict().items():
        assert weight.equal(before[name])  # the checkpoint is what it was
    copied = copy.deepcopy(remembering)

    def windows(of):
        ids = [3, *(token for document in of.ids for token in (*document, 3))]
        state = [copied.backbone.fresh_state(1, torch.device("cpu"), 5)]

        def make(start):
            def compute():
                part = ids[start : start + 7]
                row = Seq(torch.tensor([part[:-1]]), torch.tensor([len(part) - 1]), full=True)
                goes_on = {"continues": torch.tensor([start > 0])}
                batch = Batch(torch.arange(1), {"text": row}, values=goes_on)
                hidden = copied(batch, state[0])
                state[0] = hidden.state
                logits = copied.heads["clm"](hidden.last[0])
                labels = torch.tensor(part[1:])
                return torch.nn.functional.cross_entropy(logits, labels, reduction="sum"), len(
                    labels
                )

            return compute

        return [make(start) for start in range(0, len(ids) - 1, 6)]

    expected = _adapt(copied, rule, windows(text), windows(train) if more else ())
    assert math.log(found["perplexity_per_token"]) * found["scored_tokens"] == pytest.approx(
        expected, rel=1e-9
    )
    assert (found["dynamic_lr"], found["dynamic_decay"]) == (rule["lr"], rule.get("decay", 0.0))


def test_a_repeated_text_is_learned_by_a_model_without_memory(gpt_toy):
    model, tale = Tiny("clm", causal=True), ["the cat sat on the mat. " * 20]
    static = _measure(model, gpt_toy, tale)[1]["perplexity_per_token"]
    rule = SGDAdaptation(lr=0.1)
    assert _measure(model, gpt_toy, tale, dynamic=rule)[1]["perplexity_per_token"] < 0.7 * static
    assert _measure(model, gpt_toy, tale)[1]["perplexity_per_token"] == static


def test_a_stream_is_read_by_models_without_memory_too(gpt_toy):
    text, found = _measure(Tiny("clm", causal=True, spread=0.0), gpt_toy, TALE, stream=True)
    assert found["scored_tokens"] == text.tokens + len(TALE)
    assert found["perplexity_per_token"] == pytest.approx(500, rel=1e-5)


@pytest.mark.parametrize(
    ("head", "settings", "told"),
    [
        ("clm", {"memory": 64}, "task.memory=64: null: this model has no memory"),
        ("clm", {"memory": -1}, "task.memory=-1: 0 (none) or more tokens"),
        ("mlm", {"memory": 64}, "task.memory=64: null: this model predicts masked tokens"),
        ("clm", {"clamp_len": 9}, "task.clamp_len=9: null: this model has no distances"),
        ("mlm", {"dynamic": SGDAdaptation(lr=1.0)}, "task.dynamic='SGDAdaptation': null: this"),
        ("mlm", {"stream": True}, "task.stream=True: false: this model predicts masked tokens"),
        ("clm", {"window": 2}, "task.window=2: 4 to 16"),
    ],
)
def test_what_cannot_be_measured_is_refused(toy, head, settings, told):
    with pytest.raises(ConfigError, match=r"task\.") as refused:
        _measure(Tiny(head, head == "clm"), toy, **settings)
    assert str(refused.value).startswith(told)


def test_with_memory_windows_do_not_overlap(remembering, toy):
    with pytest.raises(
        ConfigError, match="each window goes on where the one before ended, after 6 tokens"
    ):
        _measure(remembering, toy, TALE, stride=3, trained_length=6)


@pytest.mark.parametrize("same_length", [False, True])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_keys_are_computed_once_for_all_windows(remembering, toy, same_length, batch_size):
    """As with a memory of states, whose keys every window computes."""
    settings = {"window": 4, "memory": 9, "same_length": same_length}
    _, once = _measure(remembering, toy, TALE, batch_size, **settings)
    rows = []
    count = remembering.backbone.stack.blocks["a"][0].cell.kv.register_forward_hook(
        lambda _, inputs, output: rows.append(inputs[0].shape[1])
    )
    with pytest.MonkeyPatch.context() as patch:
        read = _measure(remembering, toy, TALE, batch_size, **settings)
        few, rows[:] = max(rows), []
        patch.setattr(remembering.backbone, "reading_state", remembering.backbone.fresh_state)
        again = _measure(remembering, toy, TALE, batch_size, **settings)[1]
    count.remove()
    assert (few, max(rows)) == (4, 13)
    assert read[1] == once
    assert once == pytest.approx(again, rel=1e-12)
