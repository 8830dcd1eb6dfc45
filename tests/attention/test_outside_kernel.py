"""A pattern and two kernels from outside: hashed attention over shared queries and keys, and soft
spans that change scores. None of them needs a field, or a line, elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.cost import cost
from plmctl.attention.kernels.banded import Banded
from plmctl.attention.kernels.base import Bias, Kernel, KernelPlan
from plmctl.attention.kernels.dense import Dense, Mask
from plmctl.attention.op import AttentionOp
from plmctl.attention.patterns.base import MaskMod, Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.window import Window
from plmctl.config.compose import compose
from plmctl.core.batch import Seq
from plmctl.core.parts import part_of
from plmctl.nn.cells.attention import Attention
from plmctl.nn.env import Env, Streams
from plmctl.nn.positions import NoPosition
from plmctl.runs.contract.stand_in import TINY

B, T, W, H = 2, 96, 16, 2


@part_of("pattern")
class RandomBlocks(Pattern):
    """Each block of 8 tokens sees its own and one other (Zaheer et al., 2020)."""

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    def _other(self, count: int) -> Tensor:
        g = torch.Generator().manual_seed(self.seed)
        return torch.randint(0, count, (count,), generator=g, device="cpu")

    def blocks(self, seq: Seq, size: int) -> Tensor:
        if size != 8:
            return super().blocks(seq, size)
        count = -(-seq.ids.shape[1] // 8)
        made = torch.eye(count, dtype=torch.bool)
        made[torch.arange(count), self._other(count)] = True
        return made[None]

    def predicate(self, seq: Seq) -> MaskMod:
        other = self._other(-(-seq.ids.shape[1] // 8))
        return lambda b, h, q, k: (q // 8 == k // 8) | (other[q // 8] == k // 8)


@part_of("kernel")
class Hashed(Kernel):
    """Queries see the keys of their bucket: the sign of one random projection."""

    def plan(self, pattern: Pattern, seq: Seq, *, start: int = 0) -> KernelPlan:
        return Buckets(Mask.of(pattern, seq, k_offset=start))

    def share(self, pattern: Pattern, length: int) -> float:
        return 0.5


@dataclass(frozen=True)
class Buckets(KernelPlan):
    mask: Mask

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        q_positions: Tensor,
        k_positions: Tensor,
        bias: Bias | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        at = torch.randn(q.shape[-1], dtype=q.dtype)  # the randomness that dropout uses, too
        same = (q @ at > 0)[..., :, None] == (k @ at > 0)[..., None, :]
        hidden = self.mask.hidden(same)
        seen = same if hidden is None else same & ~hidden
        return Mask(seen).attend(q, k, v, q_positions=q_positions, k_positions=k_positions)

    def hidden(self, like: Tensor) -> Tensor | None:
        return self.mask.hidden(like)


class Span(Attention):
    """Attention whose heads learn how far they look (Sukhbaatar et al., 2019): a change of scores
    that the cell makes.
    """

    def __init__(self, *, width: int, num_heads: int) -> None:
        super().__init__(width=width, num_heads=num_heads, dropout=0.0)
        self.span = nn.Parameter(torch.tensor([4.0, 20.0], dtype=torch.float64))

    def soft(self, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        distance = (q_positions[:, :, None] - k_positions[:, None]).abs()[:, None]
        ramp = (1 + (self.span[:, None, None] - distance) / 8).clamp(1e-9, 1)
        return ramp.log()

    def forward(self, streams: Streams, env: Env) -> Tensor:
        made = self.qkv(streams["text"]).unflatten(-1, (3, self.num_heads, self.head_width))
        q, k, v = made.permute(2, 0, 3, 1, 4).unbind(0)
        y = env.ops["text"](q, k, v, env, bias=self.soft)
        return self.out(y.transpose(1, 2).flatten(2))


def bound(pattern: Pattern, kernel: Kernel) -> Env:
    seq = Seq(torch.zeros(B, T, dtype=torch.long), torch.full((B,), T), full=True)
    op = AttentionOp(pattern, NoPosition(), kernel)
    return Env({"text": op.bind(seq, positions=torch.arange(T)[None])})


def text() -> Streams:
    g = torch.Generator().manual_seed(0)
    return Streams({"text": torch.randn(B, T, W, generator=g, dtype=torch.float64)})


def test_a_block_sparse_pattern_skips_blocks() -> None:
    pattern, cell = RandomBlocks(seed=1), Attention(width=W, num_heads=H, dropout=0.0).double()
    banded = Banded(block=8)
    torch.testing.assert_close(
        cell(text(), bound(pattern, banded)), cell(text(), bound(pattern, Dense()))
    )
    assert banded.share(pattern, T) <= 2 * 8 / T
    assert banded.share(pattern & Causal(), T) < banded.share(pattern, T)


def test_a_hashed_kernel_runs_in_a_cell_with_shared_queries_and_keys() -> None:
    cell = Attention(width=W, num_heads=H, dropout=0.0, projections="shared").double()
    torch.manual_seed(0)
    found = cell(text(), bound(Causal(), Hashed()))
    torch.manual_seed(0)
    assert torch.equal(found, cell(text(), bound(Causal(), Hashed())))
    assert not torch.equal(found, cell(text(), bound(Causal(), Hashed())))
    changed = text()["text"].clone()
    changed[:, 50:] += 1
    torch.manual_seed(0)
    moved = cell(Streams({"text": changed}), bound(Causal(), Hashed()))
    assert torch.equal(found[:, :50], moved[:, :50])


def test_a_soft_span_changes_scores_in_every_kernel() -> None:
    cell = Span(width=W, num_heads=H).double()
    answers = []
    for kernel in (Dense(), Banded(block=8)):
        out = cell(text(), bound(Window(reach=30), kernel))
        answers.append([out, *torch.autograd.grad(out.square().sum(), list(cell.parameters()))])
    torch.testing.assert_close(answers[0], answers[1], atol=1e-10, rtol=1e-10)
    assert bool((answers[0][1] != 0).any())


def test_a_kernel_is_named_in_a_config() -> None:
    words = ["size=tiny", "format.max_length=32"]
    chosen = f"kernel._target_={__name__}.Hashed"
    cfg = compose("pretrain", "bert", [*words, chosen], plugins=["tests"])
    with torch.device("meta"):
        model = build_model(cfg, vocab_size=TINY.size, vocab=TINY, plugins=["tests"])
        plain = build_model(compose("pretrain", "bert", words), vocab_size=TINY.size, vocab=TINY)
    assert isinstance(model.backbone.kernel, Hashed)
    found, all_pairs = (
        cost(each, length=32, predicted={"mlm": 0.15}).macs_per_token["attention scores"]
        for each in (model, plain)
    )
    assert found == all_pairs / 2
