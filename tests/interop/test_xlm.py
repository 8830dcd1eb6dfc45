"""Settings of XLM's and FlauBERT's config.json: which are read, which are refused, and what an
export states. Outputs are compared in test_relatives.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.interop.flaubert import FlaubertFamily
from plmctl.interop.xlm import XLMFamily
from plmctl.nn.embeddings import Embedding
from plmctl.nn.positions import NoPosition

SMALL = {"vocab_size": 40, "emb_dim": 16, "n_layers": 2, "n_heads": 2}
REFUSED = [
    ({"causal": True}, r"causal=True: False: tokens see both sides"),
    ({"asm": True}, r"asm=True: False \(an adaptive softmax"),
    ({"is_encoder": False}, r"is_encoder=False: True"),
    ({"summary_type": "mean"}, r"summary_type='?mean'?: first"),
    ({"summary_activation": "tanh"}, r"summary_activation='?tanh'?: None"),
    ({"n_langs": 3, "lang_id": 3}, r"lang_id=3: a number below 3"),
]


@pytest.mark.parametrize(("odd", "message"), REFUSED)
@pytest.mark.parametrize("family", [XLMFamily(), FlaubertFamily()])
def test_what_is_not_read_is_refused_by_name(
    family: XLMFamily, odd: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"config.json: {message}"):
        family.numbers(SMALL | odd)


def test_settings_come_back() -> None:
    names = {"ar": 0, "en": 1, "fr": 2}
    own = SMALL | {"n_langs": 3, "lang_id": 2, "lang2id": names, "pad_index": 5}
    family = FlaubertFamily()
    numbers = family.numbers(own | {"pre_norm": True, "layerdrop": 0.2})
    assert (numbers.languages, numbers.usual_language, numbers.pad) == (3, 2, 5)
    line = family.describe_reading(numbers)
    assert line.startswith("text has the vector of language 2 (fr) of 3, as lang_id in config.json")
    assert line.endswith("training skips no layer: its layerdrop is not read")
    nodes = {**family.nodes(numbers), "origin": family.remember(numbers)}
    tables = {"backbone.embedding.token.weight": torch.zeros(40, 16)}
    found = family.settings(family.measure(nodes, tables, 5))
    wanted = {"pre_norm": True, "layerdrop": 0.2, "use_lang_emb": True, "pad_token_id": 5}
    wanted |= {"id2lang": {"0": "ar", "1": "en", "2": "fr"}, "n_layers": 2, "emb_dim": 16}
    wanted |= {key: own[key] for key in ("n_langs", "lang_id", "lang2id")}
    assert {key: found[key] for key in wanted} == wanted
    # without vectors of its languages a model keeps their number
    plain = family.numbers(own | {"use_lang_emb": False})
    nodes = {**family.nodes(plain), "origin": family.remember(plain)}
    again = family.settings(family.measure(nodes, tables, 5))
    assert (again["n_langs"], again["use_lang_emb"], again["pre_norm"]) == (3, False, False)


def test_rows_without_a_language_have_the_usual_one() -> None:
    torch.manual_seed(0)
    own = Embedding(vocab_size=7, width=4, dropout=0.0, languages=3, usual_language=2)
    ids, kinds = torch.tensor([[1, 5]]), torch.tensor([[0, 1]])
    for tracks, vectors in (({}, [2, 2]), ({"language": kinds}, [0, 1])):
        seq = Seq(ids, torch.tensor([2]), tracks)
        wanted = own.token.weight[ids] + own.language.weight[vectors]
        assert own(seq, NoPosition(), torch.arange(2)[None]).equal(wanted)
    with pytest.raises(ConfigError, match=r"usual_language=3: less than languages=3"):
        Embedding(vocab_size=7, width=4, dropout=0.0, languages=3, usual_language=3)
