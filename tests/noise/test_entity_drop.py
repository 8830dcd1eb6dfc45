"""Wrong and missing entities: shares, units, alignment, and the same bytes in any batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, DataError
from plmctl.noise.entity_drop import EntityDrop
from tests.noise.plain_rows import make_rows


def marked(n: int = 300, width: int = 40) -> Rows:
    """Rows with mentions of 1 to 3 tokens, each of an id of its own."""
    rng = np.random.default_rng(1)
    spans = []
    for row in range(n):
        for start in range(2, width - 4, 5):
            spans.append((row, start, int(rng.integers(1, 4)), len(spans)))
    return replace(make_rows(n, width), spans={"entity": np.array(spans, np.int64)})


def shown(rows: Rows, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    noise = EntityDrop(**{"replaced": 0.05, "dropped": 0.15, **settings})
    made = noise(rows, Draws(3, 1))
    assert (made.seqs["text"].ids == rows.seqs["text"].ids).all()
    return made.seqs["text"].tracks["entity"], made.targets["entity"]


@pytest.mark.parametrize("align", ["all", "first"])
@pytest.mark.parametrize("unit", ["position", "mention"])
def test_shares_and_labels(unit: Any, align: Any) -> None:
    rows = marked()
    track, target = shown(rows, unit=unit, align=align)
    wanted = np.full(track.shape, IGNORE)
    whole = []
    for row, start, length, identity in rows.spans["entity"].tolist():
        end = start + (length if align == "all" else 1)
        wanted[row, start:end] = identity
        own = track[row, start:end]
        assert ((own == identity + 1) | (own <= 0)).all()
        whole.append(len({int(np.sign(x)) for x in own}) == 1)
    assert (target == wanted).all()
    assert all(whole) == (unit == "mention" or align == "first")
    assert (track[wanted == IGNORE] == 0).all()
    asked = track[rows.spans["entity"][:, 0], rows.spans["entity"][:, 1]]  # one of each mention
    for kind, share in ((asked < 0, 0.05), (asked == 0, 0.15)):
        assert stats.binomtest(int(kind.sum()), len(asked), share).pvalue > 1e-3


def test_marks_of_another_name() -> None:
    rows = marked(6)
    noise = EntityDrop(replaced=0.05, dropped=0.15, marks="sense")
    assert noise.reads == {"input", "spans.sense"}
    assert noise.writes == {"tracks.sense", "targets.sense"} == {"tracks.sense", *noise.fields}
    made = noise(replace(rows, spans={"sense": rows.spans["entity"]}), Draws(3, 1))
    track, target = shown(rows)
    assert (made.seqs["text"].tracks["sense"] == track).all()
    assert (made.targets["sense"] == target).all()


def test_no_noise_and_any_batch() -> None:
    rows = marked(6)
    track, target = shown(rows, replaced=0.0, dropped=0.0)
    assert (track[target != IGNORE] == target[target != IGNORE] + 1).all()
    track, _ = shown(rows)
    spans = rows.spans["entity"]
    own = spans[spans[:, 0] == 4]
    own[:, 0] = 0
    text = rows.seqs["text"]
    one = Rows(
        rows.key[4:5],
        {"text": replace(text, ids=text.ids[4:5], length=text.length[4:5])},
        spans={"entity": own},
    )
    assert (shown(one)[0][0] == track[4]).all()


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match="together at most 1"):
        EntityDrop(replaced=0.6, dropped=0.5)
    with pytest.raises(DataError, match="no spans 'entity'"):
        shown(make_rows(2, 20))
