"""LSH attention: the definition as loops over pairs, `transformers`, full attention, documents,
padding, tokens one by one, linear work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.nn.cache import Cache
from plmctl.nn.cells.base import RowSize
from plmctl.nn.cells.lsh_attention import LSHAttention
from plmctl.nn.env import Env, Streams
from plmctl.nn.hashing import count_buckets, hash_vectors
from tests.nn.saved_tensors import saved_numbers
from tests.nn.stacks import make_env, make_stack
from tests.nn.test_sequence_cells import packed, plain

W, HEADS, D = 12, 2, 4
SEED = 7
CAUSAL = pytest.mark.parametrize("causal", [True, False])
VARIANT = pytest.mark.parametrize("variant", ["paper", "released"])


def make(**settings: Any) -> LSHAttention:
    torch.manual_seed(0)
    given = {"chunk": 4, "rounds": 2, "causal": True, "buckets": 4, "hash_seed": SEED, **settings}
    cell = LSHAttention(width=W, num_heads=HEADS, head_width=D, dropout=0.0, **given)
    return cell.double().eval()


def stream(rows: int = 2, length: int = 16) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, length, W, generator=generator, dtype=torch.float64)


def run(cell: LSHAttention, x: Tensor, env: Env | None = None) -> Tensor:
    return cell(Streams({"text": x}), env or plain(*x.shape[:2]))


def buckets_of(cell: LSHAttention, q: Tensor) -> list[list[list[int]]]:
    """Of one row [H, L, D]: [R] lists for each head, by the definition `argmax [x R; -x R]`."""
    factors = cell.factors or count_buckets(q.shape[1], cell.chunk)
    shape = (HEADS, D, cell.rounds, sum(factors) // 2)
    generator = torch.Generator().manual_seed(SEED)
    rotations = torch.randn(shape, generator=generator, dtype=q.dtype)
    table: list[Any] = []
    for head in range(HEADS):
        table.append([])
        for number in range(cell.rounds):
            turned = q[head] @ rotations[head, :, number]
            bucket, start, times = torch.zeros(len(turned), dtype=torch.long), 0, 1
            for factor in factors:
                part = turned[:, start : start + factor // 2]
                bucket += times * torch.cat([part, -part], 1).argmax(1)
                start, times = start + factor // 2, times * factor
            table[head].append(bucket.tolist())
    return table


def loop(cell: LSHAttention, x: Tensor, documents: list[int] | None = None) -> Tensor:
    """One row [L, W] -> [L, W], pair by pair. Padding (-1) is read by nothing."""
    length, m = len(x), cell.chunk
    qv = (cell.qkv.weight @ x.T).T.view(length, 2, HEADS, D)
    q, v = qv[:, 0].transpose(0, 1), qv[:, 1].transpose(0, 1)
    k = q / (q.square().mean(-1, keepdim=True) + 1e-6).sqrt() / D**0.5
    table = buckets_of(cell, q.detach())
    of = documents or [0] * length
    causal, y = not cell.facts.ahead, torch.zeros(length, HEADS, D, dtype=x.dtype)
    chunks = -(-length // m)
    for head in range(HEADS):
        buckets: list[list[int]] = table[head]
        if cell.variant == "released" and length <= m:
            rank, chunks, rounds = [list(range(length))], 1, 1
        else:
            rounds, rank = cell.rounds, []
            for number in range(rounds):  # padding comes last
                key = [(of[i] < 0, of[i], buckets[number][i], i) for i in range(length)]
                order = sorted(range(length), key=lambda i: key[i])
                rank.append([order.index(i) for i in range(length)])
        for i in range(length):
            terms: list[tuple[Tensor, Tensor]] = []  # (score, value), over all rounds
            for r in range(rounds):
                for r2 in range(rounds):
                    for j in range(length):
                        a, b = r * chunks + rank[r][i] // m, r2 * chunks + rank[r2][j] // m
                        near = b == a or (chunks * rounds > 1 and b == (a - 1) % (chunks * rounds))
                        allowed = of[i] == of[j] and (not causal or j <= i)
                        correction = torch.zeros((), dtype=x.dtype)
                        if cell.variant == "paper":
                            near = r == r2 and a - b in (0, 1)
                            same = [buckets[n][i] == buckets[n][j] for n in range(rounds)]
                            allowed &= same[r]
                            correction = torch.tensor(float(max(1, sum(same)))).log().to(x)
                        if near and allowed:
                            own = torch.tensor(-1e5, dtype=x.dtype)
                            score = own if i == j else q[head, i] @ k[head, j] - correction
                            terms.append((score, v[head, j]))
            weights = torch.stack([score for score, _ in terms]).softmax(0)
            y[i, head] = weights @ torch.stack([value for _, value in terms])
    return y.flatten(1) @ cell.out.weight.T


@pytest.mark.sampled(5)
@VARIANT
@CAUSAL
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("buckets", [4, [2, 4], None])
def test_it_is_the_loop_over_pairs(
    variant: str, causal: bool, rounds: int, buckets: int | list[int] | None
) -> None:
    cell = make(variant=variant, causal=causal, rounds=rounds, buckets=buckets)
    x = stream(2, 14).requires_grad_()
    y, weights = run(cell, x), torch.randn(14, W, dtype=torch.float64)
    for row in range(2):
        wanted = loop(cell, x[row])
        torch.testing.assert_close(y[row], wanted, rtol=1e-10, atol=1e-10)
        inputs = [x, *cell.parameters()]
        grads = torch.autograd.grad((y[row] * weights).sum(), inputs, retain_graph=True)
        others = torch.autograd.grad((wanted * weights).sum(), inputs)
        torch.testing.assert_close(grads, others, rtol=1e-8, atol=1e-10)


@VARIANT
@CAUSAL
@torch.no_grad()
def test_documents_and_padding_are_apart(variant: str, causal: bool) -> None:
    cell, x = make(variant=variant, causal=causal), stream(3, 11)
    documents = torch.tensor([[0] * 5 + [1] * 3 + [2] * 3, [0] * 7 + [-1] * 4, [-1] * 2 + [0] * 9])
    y = run(cell, x, packed(documents))
    for row, numbers in enumerate(documents):
        wanted = loop(cell, x[row], numbers.tolist())
        real = numbers >= 0
        torch.testing.assert_close(y[row, real], wanted[real], rtol=1e-10, atol=1e-10)
    assert y.isfinite().all()


@CAUSAL
@torch.no_grad()
def test_a_chunk_of_half_a_row_sees_everything(causal: bool) -> None:
    """Full attention with shared queries and keys, in which a token does not see itself."""
    cell, x = make(variant="released", rounds=1, chunk=8, causal=causal), stream(2, 16)
    q, v = cell.qkv(x).view(2, 16, 2, HEADS, D).permute(2, 0, 3, 1, 4)
    score = q @ (q / (q.square().mean(-1, keepdim=True) + 1e-6).sqrt()).mT / D**0.5
    hidden = torch.eye(16, dtype=torch.bool)
    hidden[0, 0] = not causal  # the first token has nothing else
    if causal:
        hidden |= torch.ones(16, 16, dtype=torch.bool).triu(1)
    weights = score.masked_fill(hidden, -torch.inf).softmax(-1)
    wanted = cell.out((weights @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(run(cell, x), wanted, rtol=1e-10, atol=1e-10)


@VARIANT
@torch.no_grad()
def test_more_rounds_come_nearer_to_full_attention(variant: str) -> None:
    x = stream(4, 64)
    full = run(make(variant="released", chunk=64), x)
    far = {}
    for rounds in (1, 16):
        cell = make(variant=variant, rounds=rounds, chunk=16, buckets=8)
        far[rounds] = float((run(cell, x) - full).square().mean())
    assert far[16] < 0.6 * far[1]


@VARIANT
@pytest.mark.parametrize("cuts", [[16], [9, 1, 6], [1] * 16])
@torch.no_grad()
def test_reading_on_is_reading_all_so_far(variant: str, cuts: list[int]) -> None:
    cell, x, cache, start = make(variant=variant, buckets=None), stream(), Cache.of(1), 0
    for cut in cuts:
        new = x[:, start : start + cut]
        y = run(cell, new, plain(2, cut, cache, start))
        start += cut
        wanted = run(cell, x[:, :start])[:, -cut:]
        torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_single_precision_is_near_for_every_row() -> None:
    """The first token, which has only itself, too: its score of -1e5 must not lose precision."""
    cell, x = make(variant="released", rounds=3), stream()
    env = replace(plain(2, 16), remembered={})  # the same buckets for both
    wanted = run(cell, x, env)
    found = run(cell.float(), x.float(), env)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-5)


def test_evaluation_repeats_itself_and_training_draws() -> None:
    cell, x = make(), stream(2, 32)
    assert torch.equal(run(cell, x), run(cell, x))
    assert not torch.equal(run(cell, x), run(make(hash_seed=8), x))
    cell.train()
    torch.manual_seed(3)
    state, first, second = torch.get_rng_state(), run(cell, x), run(cell, x)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(run(cell, x), first)


def test_near_vectors_share_buckets_of_two_factors() -> None:
    """All 64 buckets are used, and vectors that differ little mostly fall into one."""
    x = torch.randn(1, 1, 4096, 16, generator=torch.Generator().manual_seed(0))
    buckets = hash_vectors(x, [8, 8], 4, seed=0)
    assert set(buckets.flatten().tolist()) == set(range(64))
    near = hash_vectors(3 * x + 0.1 * torch.ones(16), [8, 8], 4, seed=0)
    far = hash_vectors(x.flip(2), [8, 8], 4, seed=0)
    assert float((near == buckets).float().mean()) > 0.8
    assert float((far == buckets).float().mean()) < 0.1


@pytest.mark.parametrize(
    ("length", "chunk", "factors"),
    [(1024, 64, [32]), (10, 64, [2]), (4096, 64, [128]), (65536, 64, [46, 46]), (66, 64, [2])],
)
def test_buckets_by_rule(length: int, chunk: int, factors: list[int]) -> None:
    assert count_buckets(length, chunk) == factors


def _literal(stack: Any, x: Tensor, env: Env) -> Tensor:
    """Two streams with stored activations."""
    one, two = x, x
    for step in stack.steps:
        one, two = (
            two,
            one + stack.block(step).change(Streams({"text": stack.block(step).norm_in(two)}), env),
        )
    return stack.final_norm((one + two) / 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_reversible_gradients_with_the_buckets_of_the_forward_pass(dtype: torch.dtype) -> None:
    """With dropout and drawn rotations; inputs that differ by rounding would hash apart."""
    hashed: Callable[..., LSHAttention] = lambda: LSHAttention(  # noqa: E731
        width=8, num_heads=2, dropout=0.2, chunk=4, rounds=2, causal=True, buckets=4
    )
    stack = make_stack("hf*6", dropout=0.2, dtype=dtype, reversible=True, more={"h": hashed})
    grads = []
    for reversible in (False, True):
        torch.manual_seed(5)
        x = torch.randn(2, 16, 8, generator=torch.Generator().manual_seed(1)).to(dtype)
        x.requires_grad_()
        env = make_env(16)
        y = stack(Streams({"text": x}), env)[0]["text"] if reversible else _literal(stack, x, env)
        inputs = [x, *stack.parameters()]
        grads.append(torch.autograd.grad(y.square().sum(), inputs))
    apart = 1e-10 if dtype is torch.float64 else 1e-4
    torch.testing.assert_close(*grads, rtol=apart, atol=apart)


@pytest.mark.slow  # the loop over pairs stays
def test_work_and_memory_are_linear_in_length() -> None:
    hashed: Callable[..., LSHAttention] = lambda: LSHAttention(  # noqa: E731
        width=8, num_heads=2, dropout=0.0, chunk=16, rounds=2, causal=True, buckets=16
    )
    stack, kept = make_stack("h", more={"h": hashed}), {}
    for length in (512, 2048):
        x = torch.randn(2, length, 8, dtype=torch.float64, requires_grad=True)
        kept[length] = saved_numbers(stack, x, make_env(length))
    assert kept[2048] < 4.1 * kept[512]
    works = [make().work(RowSize(tokens=length)) for length in (512, 2048)]
    assert works[1].scores == 4 * works[0].scores
    assert works[1].kept == 4 * works[0].kept


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        (3, "an even number or even factors.*buckets=4"),
        ([16, 5], r"even factors.*buckets=\[16,6\]"),
        ([32, 32], "at most 512, the tokens of the longest row.*buckets=null"),
    ],
)
def test_buckets_that_cannot_be(buckets: int | list[int], message: str) -> None:
    with pytest.raises(ConfigError, match="(?s)" + message):
        make(buckets=buckets, max_length=512)


def test_a_bad_width_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"size\.num_heads"):
        LSHAttention(width=10, num_heads=4, dropout=0.0, chunk=4, rounds=1, causal=True)
