"""Multi-head self-attention (Vaswani et al., 2017, arXiv:1706.03762, sec. 3.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import NotRequired, TypedDict, cast

from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.base import (
    MAPS,
    Cell,
    CellFacts,
    Heads,
    Prefix,
    Projections,
    RowSize,
    Work,
    check_heads,
    split_heads,
)
from plmctl.nn.divided import CutColumns, CutRows, Plan
from plmctl.nn.env import Env, Streams
from plmctl.nn.norm import RMSNorm
from plmctl.nn.scores import make_score
from plmctl.nn.weights import WeightsFactory, make_weights

# the index of the map that gives q, k and v
PROJECTIONS = {"own": (0, 1, 2), "shared": (0, 0, 1), "none": (0, 0, 0)}


class AttentionSettings(TypedDict):
    """The settings of `Attention` that kinds of it pass on."""

    width: int
    num_heads: int
    dropout: DropoutRate
    head_width: NotRequired[int | None]
    bias: NotRequired[bool]
    scores: NotRequired[str]
    qk_norm: NotRequired[bool]
    weights: NotRequired[WeightsFactory | None]


@part_of("cells")
class Attention(Cell):
    """`out(softmax(q k^T / sqrt(D)) v)` with q, k, v from one fused linear map `qkv` and dropout on
    the probabilities.

    [B, T, W] -> [B, T, W]. The rows of `qkv.weight [3 H D, W]` are all of q, then k, then v, each
    ordered (head, D). `scores`: scaled, dot (Raffel et al., 2020, T5) or general, see nn/scores.py.
    `projections`: "shared", one map makes q and k, `qkv.weight [2 H D, W]` (Kitaev et al., 2020,
    arXiv:2001.04451, sec. 2); "none": q, k and v of a head are its D columns of the stream, and
    only `out` is learned. `qk_norm`: every query and key is divided by its root mean square over
    its D columns and multiplied by learned weights, before positions turn it. There is one weight
    for each column, the same in all heads. (Henry et al., 2020, arXiv:2010.04245, with a norm for a
    learned temperature; Dehghani et al., 2023, arXiv:2302.05442, sec. 2.2, with layer norms.)
    `weights` replaces softmax (nn/entmax.py). `outputs`: columns of the result; null: W.
    `qkv_bias`: whether queries, keys and values have a bias; null: as `bias` says.
    `kv_heads`: K heads of keys and values, each for H / K heads of queries next to each other
    (Ainslie et al., 2023, arXiv:2305.13245); then `q.weight [H D, W]` and `kv.weight [2 K D, W]`
    replace `qkv`. Where a model has a stream `content` [B, T', W], keys and values are made of it.
    Differs: shared keys keep their length, and a token sees itself; a cache holds the keys of all H
    heads.
    """

    projected_by = "out"
    facts = CellFacts(
        computes="attention", reads=frozenset({"text", "content"}), records=True, takes_prefix=True
    )

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        dropout: DropoutRate,
        head_width: int | None = None,
        bias: bool = True,
        qkv_bias: bool | None = None,
        scores: str = "scaled",
        projections: str = "own",
        qk_norm: bool = False,
        weights: WeightsFactory | None = None,
        outputs: Count | None = None,
        kv_heads: Count | None = None,
    ) -> None:
        super().__init__()
        if head_width is None:
            check_heads(num_heads, width)
        if projections not in PROJECTIONS:
            allowed = f"one of {', '.join(PROJECTIONS)}{nearest(projections, PROJECTIONS)}"
            raise ConfigError("projections", projections, allowed)
        self.num_heads = num_heads
        self.head_width = head_width or width // num_heads
        self.dropout = dropout
        self.map_of, inner = PROJECTIONS[projections], num_heads * self.head_width
        if projections == "none" and inner != width:
            allowed = f"size.width / size.num_heads where projections=none: {width} columns"
            raise ConfigError("head_width", head_width, allowed)
        rows = (1 + max(self.map_of)) * inner
        if projections == "shared":  # one map gives queries and keys
            self.facts = replace(self.facts, gives={**MAPS, "qkv": ("query", "value")})
        self.kv_heads = kv_heads or num_heads
        grouped, own_bias = self.kv_heads != num_heads, bias if qkv_bias is None else qkv_bias
        _check_groups(num_heads, self.kv_heads, projections)
        self.qkv: nn.Module = (
            nn.Identity()
            if grouped or projections == "none"
            else nn.Linear(width, rows, bias=own_bias)
        )
        keys = 2 * self.kv_heads * self.head_width
        self.q = nn.Linear(width, inner, bias=own_bias) if grouped else None
        self.kv = nn.Linear(width, keys, bias=own_bias) if grouped else None
        self.score = make_score(scores, num_heads=num_heads, head_width=self.head_width)
        self.q_norm, self.k_norm = (
            RMSNorm(self.head_width, eps=1e-6) if qk_norm else None for _ in range(2)
        )
        self.facts = replace(self.facts, outputs=outputs)
        self.out = nn.Linear(inner, outputs or width, bias=bias)
        self.weigh = make_weights(weights, num_heads)
        self.prefix: Prefix | None = None  # keys and values that every token sees in addition

    def work(self, row: RowSize) -> Work:
        keys = row.tokens if row.keys is None else row.keys
        own, scores = super().work(row), 2 * row.tokens * keys * self.num_heads
        kept = scores if row.stored else 0
        return Work(own.macs, scores * self.head_width, own.kept + kept)

    def projections(self) -> Projections:
        heads = Heads(self.num_heads, self.head_width, self.dropout)
        return replace(super().projections(), heads=heads)

    def plan_division(self) -> Plan:
        """How its maps are divided, by heads; whole where a part of it has weights for each
        head.
        """
        by_head = self.weigh, self.prefix, next(self.score.parameters(), None)
        if isinstance(self.qkv, nn.Identity) or any(part is not None for part in by_head):
            return {}
        parts = 1 + max(self.map_of)
        return {"qkv": CutRows(self.num_heads, "size.num_heads", parts), "out": CutColumns()}

    def find_prefix(self) -> Prefix | None:
        """The prefix that every token sees."""
        return self.prefix

    def take_prefix(self, prefix: nn.Module) -> None:
        """Let every token see this prefix from now on."""
        self.prefix = cast(Prefix, prefix)

    def soften(self, factor: float) -> None:
        """Multiply the scores that the weights give by `factor`."""
        if isinstance(self.qkv, nn.Linear):
            shared = self.map_of[0] == self.map_of[1]  # then it counts twice
            self.qkv.weight.data[: self.out.in_features].mul_(factor**0.5 if shared else factor)
        elif self.q is not None:
            self.q.weight.data.mul_(factor)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        return self.out(self.attend(streams, env).transpose(1, 2).flatten(2))

    def attend(self, streams: Streams, env: Env) -> Tensor:
        """[B, H, T, D] what the heads have seen."""
        return self.attend_to(*self._project(streams["text"], streams.get("content")), env)

    def attend_to(self, q: Tensor, k: Tensor, v: Tensor, env: Env) -> Tensor:
        """[B, H, T, D] what the heads have seen, with these queries, keys and values."""
        q, k = self._normalize(q, k)
        if env.recorder is not None:
            env.recorder.vectors(q, k, v)
        dropout = self.dropout if self.training else 0.0
        before = None if self.prefix is None else self.prefix()
        op = self.team.bind(env, "text")
        with self.team.draws(dropout):
            return op(self.score(q), k, v, env, dropout=dropout, weigh=self.weigh, before=before)

    def _project(self, x: Tensor, content: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """[B, H, T, D] queries of `x [B, T, W]`, and keys and values of `content`; None: of `x`."""
        if self.q is None or self.kv is None:
            own = self._project_maps(x)
            first = self.map_of[1]
            other = own[first:] if content is None else self._project_maps(content, first)
            k, v = (other[index - first] for index in self.map_of[1:])
            return own[self.map_of[0]], k, v
        (q,) = split_heads(self.q(x), self.num_heads, self.head_width)
        content = x if content is None else content
        own = split_heads(self.kv(content), self.kv_heads, self.head_width)
        k, v = (each.repeat_interleave(self.num_heads // self.kv_heads, 1) for each in own)
        return q, k, v

    def _project_maps(self, x: Tensor, first: int = 0) -> tuple[Tensor, ...]:
        """[B, H, T, D] each: the results of the maps in `qkv`, from number `first` on."""
        heads = self.team.count(self.num_heads)
        if first and type(self.qkv) is nn.Linear and self.team.size == 1:
            rows, bias = first * heads * self.head_width, self.qkv.bias
            x = F.linear(x, self.qkv.weight[rows:], None if bias is None else bias[rows:])
            return split_heads(x, heads, self.head_width)
        return split_heads(self.qkv(x), heads, self.head_width)[first:]

    def _normalize(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys after their norms, if there are some."""
        if self.q_norm is None or self.k_norm is None:
            return q, k
        return self._divide(q, self.q_norm), self._divide(k, self.k_norm)

    def _divide(self, x: Tensor, norm: nn.RMSNorm) -> Tensor:
        if self.team.size == 1:
            return norm(x)  # type: ignore[no-any-return]
        x = x.to(norm.weight.dtype)
        return F.rms_norm(x, norm.normalized_shape, self.team.enter(norm.weight), norm.eps)


def _check_groups(num_heads: int, kv_heads: int, projections: str) -> None:
    """Raise ConfigError unless heads of keys serve equally many heads of queries."""
    fits = ", ".join(str(n) for n in range(1, num_heads + 1) if num_heads % n == 0)
    if num_heads % kv_heads:
        raise ConfigError("kv_heads", kv_heads, f"a divisor of {num_heads} heads: {fits}")
    if kv_heads != num_heads and projections != "own":
        allowed = f"null where projections={projections}: keys are those of every head"
        raise ConfigError("kv_heads", kv_heads, allowed)
