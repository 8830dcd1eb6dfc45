from __future__ import annotations

import pytest

from tests.noise.plain_rows import make_rows, make_vocab


@pytest.fixture
def cells_of():
    return make_rows


@pytest.fixture
def vocab_of():
    return make_vocab
