"""Settings of `generation_config.json`: the texts of `transformers` without settings of a user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.generation.constrained import Constrained
from plmctl.generation.contrastive import Contrastive
from plmctl.generation.diverse import Diverse
from plmctl.generation.published import find_stated, state_search, to_settings
from plmctl.generation.sample import Sample
from tests.interop.conftest import with_tokenizer
from tests.interop.publishing import publish

transformers = pytest.importorskip("transformers")
__all__ = ["with_tokenizer"]  # the fixture

STATED = {
    "num_beams": 3,
    "length_penalty": 0.4,
    "early_stopping": True,
    "no_repeat_ngram_size": 2,
    "min_length": 5,
    "max_length": 9,
    "num_return_sequences": 2,
    "repetition_penalty": 1.2,
    "bad_words_ids": [[7, 9]],
    "suppress_tokens": [39],
    "forced_eos_token_id": 3,
}


def test_a_published_model_writes_as_its_folder_says(
    with_tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, folder = publish(tmp_path / "a", "BartForConditionalGeneration")
    config = transformers.GenerationConfig.from_pretrained(folder)
    config.update(**STATED, eos_token_id=3, encoder_no_repeat_ngram_size=2)
    config.save_pretrained(folder)
    with_tokenizer(folder)
    loaded = plmctl.load(folder)
    (found,) = loaded.generate(["the cat sat on the mat"])
    config.encoder_no_repeat_ngram_size = 0
    model.generation_config = config
    (ids,) = loaded.encode(["the cat sat on the mat"])
    wanted = model.generate(torch.tensor([ids]), do_sample=False)
    spelled = [loaded.tokenizer.decode([i for i in row if i > 3]) for row in wanted[:, 1:].tolist()]
    assert [text["text"] for text in found["texts"]] == spelled
    said = "\n".join(caplog.messages)
    assert "search=beam search.width=3 search.alpha=0.4 search.early=true" in said
    assert "not used: encoder_no_repeat_ngram_size=2" in said
    # settings of a user stay
    (greedy,) = loaded.generate(["the cat sat on the mat"], search="greedy")
    assert len(greedy["texts"]) == 1
    (forced,) = loaded.generate(["the cat"], search="constrained", options={"phrases": ["on the"]})
    assert "on the" in forced["texts"][0]["text"]
    convert(folder, tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "again", to="hf")
    again = transformers.GenerationConfig.from_pretrained(tmp_path / "again")
    free = {"bos_token_id", "_from_model_config", "output_attentions", "output_hidden_states"}
    free |= {"eos_token_id", "pad_token_id", "use_cache", "transformers_version"}
    first, last = (
        {key: value for key, value in each.to_diff_dict().items() if key not in free}
        for each in (transformers.GenerationConfig.from_pretrained(folder), again)
    )
    assert (first, again.eos_token_id) == (last, 3)


@pytest.mark.parametrize(
    ("stated", "forced", "settings", "unread"),
    [
        ({"num_beams": 1, "temperature": 0.7, "length_penalty": 2.0}, 0, {}, []),
        ({"forced_eos_token_id": [2, 5]}, 0, {}, ["forced_eos_token_id"]),
        (
            {"max_length": 142, "min_length": 56, "forced_eos_token_id": 2},
            1,
            {"search": "greedy", "max_new": 140, "search.min_length": 54, "search.last": 2},
            [],
        ),
        (
            {"do_sample": True, "top_p": 0.9, "max_new_tokens": 8, "max_length": 50},
            None,
            {"search": "sample", "search.top_p": 0.9, "search.top_k": 50, "max_new": 8},
            ["max_length"],
        ),
        (
            {"do_sample": True, "top_k": 0, "num_beams": 4, "bad_words_ids": [[3]], "min_p": 0.0},
            0,
            {"search": "beam", "search.width": 4, "search.excluded": [[3]]},
            ["do_sample"],
        ),
        (
            {"num_beams": 4, "num_beam_groups": 2, "num_return_sequences": 3, "penalty_alpha": 0.6},
            0,
            {"search": "diverse", "search.width": 4, "search.groups": 2, "search.count": 3}
            | {"search.diversity": 0.0},
            [],
        ),
        (
            {"num_beams": 4, "force_words_ids": [[[3], [4]]]},
            0,
            {"search": "beam", "search.width": 4},
            ["force_words_ids"],
        ),
        (
            {"penalty_alpha": 0.6, "top_k": 4},
            None,
            {"search": "contrastive", "search.alpha": 0.6, "search.top_k": 4},
            [],
        ),
    ],
)
def test_settings_without_effect_say_nothing(
    stated: dict[str, Any], forced: int | None, settings: dict[str, Any], unread: list[str]
) -> None:
    assert to_settings(find_stated(stated), forced=forced) == (settings, unread)


def test_the_search_of_a_task_is_published() -> None:
    own: Any = {"min_p": 0.1, "typical_p": 0.8, "repetition_penalty": 1.2, "min_length": 3}
    own |= {"excluded": [[4, 5], [7]], "last": 2}
    facts = Sample(temperature=0.5, top_k=None, top_p=0.9, seed=0, **own).facts
    stated = state_search(facts, max_new=7, forced=1)
    settings, unread = to_settings(stated, forced=1)
    assert settings.pop("search") == "sample"
    wanted = {"temperature": 0.5, "top_p": 0.9, "top_k": None, **own}
    assert settings == {"max_new": 7} | {f"search.{key}": v for key, v in wanted.items()}
    assert unread == []
    # the library's own value is stated where ours differs
    assert transformers.GenerationConfig(**stated).top_k == 0


BEAM: Any = {"width": 4, "count": 2, "alpha": 0.5, "penalty": "length", "early": True}


@pytest.mark.parametrize(
    ("name", "search", "more"),
    [
        ("diverse", Diverse(groups=2, diversity=0.3, **BEAM), {"groups": 2, "diversity": 0.3}),
        ("constrained", Constrained(phrases=[[4, 5]], **BEAM), {"phrases": [[4, 5]]}),
        ("contrastive", Contrastive(top_k=4, alpha=0.6), {"top_k": 4, "alpha": 0.6}),
    ],
)
def test_further_searches_are_published(name: str, search: Any, more: dict[str, Any]) -> None:
    settings, unread = to_settings(state_search(search.facts, max_new=7, forced=0), forced=0)
    own = {**BEAM, **more} if search.facts.width > 1 else more
    wanted = {f"search.{key}": value for key, value in own.items() if key != "penalty"}
    assert (settings, unread) == ({"search": name, "max_new": 7, **wanted}, [])
