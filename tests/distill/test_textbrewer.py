"""Our losses against those of TextBrewer (Yang et al., 2020, arXiv:2002.12620) on the same tensors.

`PEER` was printed by `pip install --no-deps --target tb textbrewer==0.2.1.post1` and then
`PYTHONPATH=tb python tests/distill/test_textbrewer.py`.
"""

from __future__ import annotations

import pytest
import torch

from plmctl.core.batch import Batch, Seq
from plmctl.distill.attention import AttentionKL, AttentionMSE
from plmctl.distill.base import Logits, Measures, Predictions, Teacher
from plmctl.distill.hidden import HiddenCosine, HiddenMSE, Patient
from plmctl.distill.logits import LogitMSE, SoftTargets

TAU, B, T, W, H, K = 3.0, 3, 5, 4, 2, 6
# of hidden states; attention is compared in full rows
REAL = torch.arange(T) < torch.tensor([[5], [3], [4]])
PEER = {
    "kd_ce_loss": 1.8274772013525478,
    "kd_mse_loss": 3.956368551880711,
    "hid_mse_loss": 4.193514201211382,
    "cos_loss": 1.1068418210322672,
    "pkd_loss": 1.5923276108784432,
    "att_mse_loss": 4.037420528905421,
    "att_ce_loss": 1.6544813150180337,
}


def waves(*shape: int, rate: float) -> torch.Tensor:
    """The same numbers on every machine."""
    return (
        torch.sin(rate * torch.arange(torch.Size(shape).numel(), dtype=torch.float64) + rate).view(
            shape
        )
        * 2
    )


PAIRS = {
    name: (waves(*shape, rate=0.37), waves(*shape, rate=0.91))
    for name, shape in {"logits": (B, K), "hidden": (B, T, W), "scores": (B, H, T, T)}.items()
}


class Told(Teacher):
    measures = Measures("the teacher", W, 2, H, W, frozenset(), "Encoder")


def ours() -> dict[str, float]:
    """Each of our losses as its mean, by the name of TextBrewer's."""
    side = [
        Predictions(
            REAL,
            {"class": Logits(PAIRS["logits"][n], torch.ones(B, dtype=torch.bool))},
            {"hidden": [PAIRS["hidden"][n]] * 3},
        )
        for n in (0, 1)
    ]
    full = [
        Predictions(torch.ones_like(REAL), recorded={"scores": [PAIRS["scores"][n]] * 2})
        for n in (0, 1)
    ]
    length = REAL.sum(1)
    batch = Batch(torch.arange(B), {"text": Seq(torch.zeros(B, T), length)}, counts={"rows": B})
    given = {"weight": 1.0, "student": Told.measures, "teacher": Told()}
    soft = SoftTargets(weight=1.0, temperature=TAU, form="ce")
    entropy = torch.special.entr(full[1].recorded["scores"][0].softmax(-1)).sum(-1).mean()
    parts = {
        "kd_ce_loss": (soft, side, "class", B * TAU**2),
        "kd_mse_loss": (LogitMSE(weight=1.0), side, "class", B),
        # two layers, alike
        "hid_mse_loss": (HiddenMSE(**given, embeddings=False), side, "", 2 * int(length.sum())),
        "cos_loss": (HiddenCosine(**given), side, "", int(length.sum())),
        "pkd_loss": (Patient(**given), side, "", B),
        "att_mse_loss": (AttentionMSE(**given), full, "", 2 * B * T),
        "att_ce_loss": (AttentionKL(**given), full, "", 2 * B * T),
    }
    found = {
        name: float(part(*pair, batch).terms[term].total) / count
        for name, (part, pair, term, count) in parts.items()
    }
    return {**found, "att_ce_loss": found["att_ce_loss"] + float(entropy)}


def theirs() -> dict[str, float]:
    from textbrewer import losses  # type: ignore[import-not-found]

    masks = {
        "hid_mse_loss": REAL,
        "cos_loss": REAL,
        "att_mse_loss": torch.ones_like(REAL),
        "att_ce_loss": torch.ones_like(REAL),
    }
    kinds = {"kd": "logits", "hid": "hidden", "cos": "hidden", "pkd": "hidden", "att": "scores"}
    found = {}
    for name in (
        "kd_ce_loss",
        "kd_mse_loss",
        "hid_mse_loss",
        "cos_loss",
        "pkd_loss",
        "att_mse_loss",
        "att_ce_loss",
    ):
        more = (
            {"mask": masks[name]}
            if name in masks
            else {"temperature": TAU}
            if name == "kd_ce_loss"
            else {}
        )
        found[name] = float(getattr(losses, name)(*PAIRS[kinds[name[:3].rstrip("_")]], **more))
    return found


def test_losses_are_those_of_textbrewer():
    assert ours() == pytest.approx(PEER, rel=1e-9)


def test_the_stored_numbers_are_still_theirs():
    pytest.importorskip("textbrewer")
    assert theirs() == pytest.approx(PEER, rel=1e-9)


if __name__ == "__main__":
    print(theirs())
