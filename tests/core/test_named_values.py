"""Rows of many named numbers: as a `dict` has them."""

from __future__ import annotations

import json
import pickle

import numpy as np

from plmctl.core.named_values import MANY, name_rows
from plmctl.core.rounding import round_floats
from plmctl.tasks.predictions import spell_json


def test_rows_of_many_names_read_as_those_of_few() -> None:
    names = [f"n{index}" for index in range(MANY)]
    table = np.random.default_rng(0).random((3, MANY))
    plain = [dict(zip(names, row, strict=True)) for row in table.tolist()]
    rows = name_rows(names, table.copy())
    assert not isinstance(rows[0], dict)
    assert rows == plain
    assert plain[1] == rows[1] != rows[2]
    assert json.loads(spell_json({"id": "1", "p": rows[2]})) == {"id": "1", "p": plain[2]}
    assert pickle.loads(pickle.dumps(rows[1])) == plain[1]
    assert max(rows[0], key=rows[0].__getitem__) == max(plain[0], key=plain[0].__getitem__)
    assert round_floats(rows) == round_floats(plain)
    few = name_rows(names[:3], table[:, :3])
    assert few == [{name: row[name] for name in names[:3]} for row in plain]
    assert isinstance(few[0], dict)
