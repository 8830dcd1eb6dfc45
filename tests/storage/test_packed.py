"""Packed weights: bytes counted by hand, values within half a step, zeros exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.cluster import KMeans

from plmctl.core.codebook import find_codebook, find_codes
from plmctl.core.errors import DataError
from plmctl.storage.packed import find_entries, pack_arrays, unpack_arrays
from plmctl.storage.reading import read_tensors


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_a_codebook_is_k_means_from_equal_steps() -> None:
    values = np.tanh(normal(900))  # no gaps, so that no entry is without values
    start = np.linspace(values.min(), values.max(), 16, dtype=np.float64)[:, None]
    theirs = KMeans(16, init=start, n_init=1, max_iter=60, tol=0, algorithm="lloyd")
    theirs.fit(values.astype(np.float64)[:, None])
    ours = find_codebook(values, 16)
    found = float(np.square(values - ours[find_codes(values, ours)]).sum())
    assert found == pytest.approx(theirs.inertia_, rel=1e-3)
    nearest = np.abs(values[:, None] - ours[None]).argmin(1)
    assert (find_codes(values, ours) == nearest).all()
    assert found < float(np.square(values - start[np.abs(values - start).argmin(0), 0]).sum())


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_codes_of_few_values_lose_nothing(bits: int) -> None:
    values = np.random.default_rng(1).choice(normal(2**bits), size=(40, 37)).astype(np.float32)
    packed = pack_arrays({"w": values, "b": normal(37)}, bits=bits)
    assert packed["w:codes"].nbytes == -(-40 * 37 * bits // 8)
    assert packed["w:table"].nbytes == 4 * 2**bits
    assert packed["b"].nbytes == 4 * 37
    again = unpack_arrays(packed)
    assert (again["w"] == values).all()
    assert again["w"].dtype == np.float32


@pytest.mark.parametrize(("group", "bits"), [(32, 4), (128, 8), (7, 3)])
def test_groups_share_a_scale(group: int, bits: int) -> None:
    values, most = normal(30, 43), 2 ** (bits - 1) - 1
    packed = pack_arrays({"w": values}, bits=bits, group=group)
    found, flat = unpack_arrays(packed)["w"].reshape(-1), values.reshape(-1)
    for start in range(0, flat.size, group):
        own = flat[start : start + group]
        scale = float(np.float16(np.abs(own).max() / most))
        steps = [max(-most, min(most, round(float(value) / scale))) for value in own]
        np.testing.assert_allclose(
            found[start : start + group], np.float32(scale) * np.array(steps), rtol=1e-6
        )
    assert packed["w:scales"].nbytes == 2 * -(-flat.size // group)


@pytest.mark.parametrize(
    ("zeros", "masked"), [(0.9, True), (0.3, True), (0.2, False), (0.0, False)]
)
@pytest.mark.parametrize("group", [0, 16])
def test_zeros_stay_exactly_0_and_a_mask_is_stored_where_it_is_smaller(
    zeros: float, masked: bool, group: int
) -> None:
    values = normal(50, 60)
    values[np.random.default_rng(2).random(values.shape) < zeros] = 0
    packed = pack_arrays({"w": values}, bits=4, group=group)
    found = unpack_arrays(packed)["w"]
    assert ("w:mask" in packed) == masked
    assert ((found == 0) >= (values == 0)).all()
    if masked and not group:
        assert ((found == 0) == (values == 0)).all()
    stored = sum(packed[f"w:{part}"].nbytes for part in ("codes", "mask") if f"w:{part}" in packed)
    left = int((values != 0).sum())
    assert stored == (-(-left * 4 // 8) + 3000 // 8 if masked else 1500)
    assert float(np.abs(found - values).max()) < 1.0


def test_an_entry_is_kept_for_zeros() -> None:
    values = normal(2000)
    values[:100] = 0
    codes, table = find_entries(values, 3)
    assert len(table) == 8
    assert (table[codes[:100]] == 0).all()
    assert (table[codes[100:]] != 0).all() or (
        np.abs(values[100:][table[codes[100:]] == 0]) < 0.5
    ).all()


def test_a_packed_file_is_read_as_floats(tmp_path: Path) -> None:
    values = torch.from_numpy(normal(40, 40))
    packed = pack_arrays({"w": values.numpy()}, bits=8, group=32)
    whole = {name: torch.from_numpy(array) for name, array in packed.items()}
    save_file({**whole, "n": torch.ones(3, dtype=torch.bfloat16)}, tmp_path / "w.safetensors")
    found = read_tensors(tmp_path / "w.safetensors")
    assert set(found) == {"w", "n"}
    assert found["n"].dtype == torch.bfloat16
    torch.testing.assert_close(found["w"], values, atol=0.02, rtol=0)
    del whole["w:codes"]
    save_file(whole, tmp_path / "w.safetensors")
    with pytest.raises(DataError, match="truncated or not a weight file"):
        read_tensors(tmp_path / "w.safetensors")
