"""The contract: which parts do not fit, all at once, each with the setting that would mend it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from plmctl.config.compose import compose
from plmctl.config.make_spec import make_spec
from plmctl.config.recipes import conf_dir, load
from plmctl.config.references import work_out
from plmctl.config.spec import thaw
from plmctl.core.errors import ConfigError, ConfigErrors, UsageError, flatten
from plmctl.core.fields import COMMON
from plmctl.core.problems import PartContext
from plmctl.knowledge.directory import KnowledgeDirectory
from plmctl.knowledge.wordnet import WordNet
from plmctl.nn.stack import Stack
from plmctl.noise.token_mask import TokenMask
from plmctl.objectives.base import Facts
from plmctl.objectives.mlm import MLM
from plmctl.runs.contract.contract import check_contract, derive_targets, find_mismatches
from plmctl.runs.contract.remedies import find_providers


class Ask:
    def __init__(self, needs: set[str], heads: set[str] = frozenset(), makes: str = "") -> None:
        self.needs, self.makes = frozenset(needs), makes
        self.facts = Facts(needs=self.needs, heads=frozenset(heads))

    def labels(self, rows: Any) -> dict[str, np.ndarray]:
        return {self.makes: rows.seqs["text"].ids} if self.makes else {}


def given(*provides: str) -> Any:
    return SimpleNamespace(provides=frozenset({"text", *provides}))


def hides(writes: set[str], reads: set[str] = frozenset()) -> Any:  # type: ignore[assignment]
    return SimpleNamespace(
        reads=frozenset({"input", *reads}), writes=frozenset(writes), removes=frozenset()
    )


def found(**parts: Any) -> list[str]:
    whole = {"format": given(), "noise": {}, "objectives": {}, "heads": (), "model": {}} | parts
    return [str(error) for error in find_mismatches(**whole)]  # type: ignore[arg-type]


def test_what_fits_is_silent() -> None:
    fits = {
        "format": given("tracks.segment", "labels.pair"),
        "noise": {"token_mask": hides({"targets.mlm"})},
        "heads": ("mlm", "nsp"),
        "objectives": {"mlm": Ask({"targets.mlm"}, {"mlm"}), "nsp": Ask({"labels.pair"}, {"nsp"})},
        "model": {"model": Ask({"tracks.segment"})},
    }
    assert found(**fits) == []


def test_every_mismatch_is_listed_with_its_asker() -> None:
    errors = found(
        noise={"swap": hides(set(), {"tracks.word_start"})},
        objectives={"mlm": Ask({"targets.mlm"}, {"mlm"}), "nsp": Ask({"labels.pair"}, {"nsp"})},
        model={"pattern": Ask({"tracks.segment"})},
        heads=("mlm",),
    )
    askers = [error.split(":")[0] for error in errors]
    assert askers == ["noise.swap", "objective.mlm", "objective.nsp", "pattern", "heads.nsp"]


def test_the_fix_names_settings_that_give_the_field() -> None:
    errors = found(
        objectives={
            "nsp": Ask({"labels.pair"}),
            "mlm": Ask({"targets.mlm"}),
            "odd": Ask({"targets.nothing"}),
            "near": Ask({"targets.mlmm"}),
        }
    )
    assert "fix: format=sentence_pair" in errors[0]
    assert "fix: 'noise=[token_mask]'" in errors[1]
    assert "no part in conf/ gives it" in errors[2]
    assert "fix: # a format of your own that provides 'targets.nothing'" in errors[2]
    assert "a name that `fields` of no part introduces" in errors[2]
    assert "(did you mean 'targets.mlm'?)" in errors[3]
    assert "fix: # 'targets.mlm' in facts.needs of objective.near" in errors[3]


def test_noise_order_counts() -> None:
    marks, uses = hides({"tracks.word_start"}), hides({"targets.mlm"}, {"tracks.word_start"})
    assert found(noise={"marks": marks, "uses": uses}) == []
    assert len(found(noise={"uses": uses, "marks": marks})) == 1


def test_targets_that_an_objective_derives_count_for_itself_only() -> None:
    clm = Ask({"text", "targets.clm"}, makes="clm")
    assert derive_targets(clm, {"text"}, COMMON) == {"targets.clm"}  # type: ignore[arg-type]
    assert found(objectives={"clm": clm}) == []
    assert len(found(objectives={"clm": clm, "other": Ask({"targets.clm"})})) == 1


def test_what_a_noise_takes_away_is_said() -> None:
    makes = SimpleNamespace(
        reads=frozenset({"input"}),
        writes=frozenset({"source", "target"}),
        removes=frozenset({"text"}),
    )
    errors = found(noise={"infill": makes}, objectives={"mlm": Ask({"text"})})
    assert errors[0].startswith(
        "objective.mlm: needs 'text', which noise.infill turns into a source and a target"
    )


def test_providers_are_read_from_conf() -> None:
    assert "format=sentence_pair" in find_providers()["labels.pair"]


def config(*names: str, **slots: Any) -> dict[str, Any]:
    """A pretraining config out of the real conf/ files, tiny, without a tokenizer."""
    made: dict[str, Any] = {
        "data": {"sources": {}, "path": None},
        "tokenizer": {},
        "heads": {},
        "objective": {},
        "noise": {},
        "train": {},
    }
    for slot, option in {
        "format": "blocks",
        "pattern": "full",
        "position": "learned",
        "model": "encoder",
        "size": "tiny",
    }.items():
        made[slot] = load(conf_dir() / slot / f"{slots.get(slot, option)}.yaml")
    for name in slots.get("noise", ["token_mask"]):
        made["noise"][name] = load(conf_dir() / "noise" / f"{name}.yaml")
    for name in names:
        for slot, parts in load(conf_dir() / "objective" / f"{name}.yaml").items():
            made[slot] = made.get(slot, {}) | parts
    return work_out({**made, "eval": {"noise": made["noise"]}})


def check(settings: dict[str, Any]) -> None:
    """`check_contract` of a spec of these settings."""
    check_contract(make_spec("pretrain", settings)[0])


def test_real_parts_fit() -> None:
    """`check_contract` raises ConfigErrors where parts do not fit."""
    check(config("mlm"))
    check(config("mlm", "nsp", format="sentence_pair"))
    check(config("clm", noise=[], pattern="causal", model="decoder"))


def test_real_parts_that_do_not_fit_are_reported_together() -> None:
    with pytest.raises(ConfigErrors) as caught:
        check(config("mlm", "nsp", noise=[]))
    text = str(caught.value)
    assert "objective.mlm: needs 'targets.mlm'" in text
    assert "objective.nsp: needs 'labels.pair'" in text
    assert "format=sentence_pair" in text
    assert "noise=[token_mask]" in text


def test_a_missing_head_and_a_wrong_number_are_reported() -> None:
    bare = config("mlm")
    bare["heads"] = {}
    with pytest.raises(ConfigError, match=r"heads.mlm"):
        check(bare)
    bad = config("mlm")
    bad["noise"]["token_mask"]["rate"] = 1.5
    bad["model"]["embedding"]["dropout"] = "abc"
    with pytest.raises(ConfigErrors) as caught:
        check(bad)
    assert "noise.token_mask.rate" in str(caught.value)
    assert "model.embedding.dropout" in str(caught.value)


def test_a_source_is_checked_with_the_objectives_that_look_at_it() -> None:
    two = config("mlm", "nsp")
    two["data"]["sources"] = {
        "text": {},
        "pairs": {"format": load(conf_dir() / "format" / "sentence_pair.yaml"), "noise": None},
    }
    two["objective"]["mlm"]["on"] = "text"
    two["objective"]["nsp"]["on"] = "pairs"
    check(two)
    two["objective"]["nsp"]["on"] = "text"
    with pytest.raises(ConfigError, match=r"labels.pair"):
        check(two)


def test_parallel_rows_of_plain_text_are_refused_before_it_is_read() -> None:
    with pytest.raises(
        UsageError,
        match=r"data\.target_path.*parallel text\n  fix: data\.path=LINES data\.target_path=",
    ):
        check_contract(compose("pretrain", "tlm", ["size=tiny", "data.path=corpus.txt"]))
    check_contract(
        compose("pretrain", "tlm", ["size=tiny", "data.path=a.txt", "data.target_path=b.txt"])
    )


def test_numbers_of_optimizer_and_schedule_are_refused_together() -> None:
    words = ["size=tiny", "optim.layer_decay=8", "schedule.warmup_steps=-3"]
    with pytest.raises(
        UsageError, match=r"2 problems(.|\n)*optim\.layer_decay=8(.|\n)*schedule\.warmup_steps=-3"
    ):
        check_contract(compose("pretrain", "bert", words))


@pytest.mark.parametrize(
    ("recipe", "words", "asker", "fix"),
    [
        ("bert", ["objective=[mlm]", "format=blocks", "noise=[]"], "objective.mlm", "token_mask"),
        ("bert", ["objective=[mlm,nsp]", "format=blocks"], "objective.nsp", "format=sentence_pair"),
        ("gpt", ["objective=[clm,mlm]"], "objective.mlm", "noise=[token_mask]"),
        ("electra", ["noise=[]"], "objective.electra", "noise=[token_mask]"),
        ("bart", ["noise=[]"], "objective.seq2seq", "format=seq2seq"),
        ("sensebert", ["noise=[token_mask]"], "objective.sense", "noise=[sense_words]"),
        ("xlnet", ["noise=[]"], "objective.plm", "noise=[factorization_order]"),
    ],
)
def test_what_an_objective_lacks_is_said_where_no_data_can_be_read(
    recipe: str, words: list[str], asker: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for remedies reads no lexicon, dictionary or graph, whether they are there."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("data are read")

    monkeypatch.setattr(WordNet, "find", refuse)
    monkeypatch.setattr(KnowledgeDirectory, "__init__", refuse)
    monkeypatch.setattr("plmctl.knowledge.sentiment.confirm", refuse)
    spec = compose("pretrain", recipe, ["size=tiny", *words])
    with pytest.raises(UsageError) as caught:
        check_contract(thaw(spec))
    told = [error for error in flatten(caught.value) if isinstance(error, ConfigError)]
    lacks = [error for error in told if error.path == asker and "nothing here gives" in str(error)]
    assert lacks, caught.value
    assert fix in lacks[0].fix


def test_every_noise_of_conf_is_among_the_remedies() -> None:
    """Also those whose lexicons are not on this machine."""
    given = {setting for settings in find_providers().values() for setting in settings}
    for name in ("sense_mask", "sense_words", "lexical_pairs", "sentiment_mask", "entity_replace"):
        assert f"noise=[{name}]" in given


def test_a_part_states_its_own_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any slot, with the config path of the part, and together with those of other parts."""

    def problems(self: object, path: str, around: PartContext) -> Iterator[ConfigError]:
        longest = around.backbone.max_length
        yield ConfigError(path, ..., f"no {type(self).__name__} with {longest} positions")

    for kind in (TokenMask, MLM, Stack):
        monkeypatch.setattr(kind, "problems", problems, raising=False)
    words = ["size=tiny", "position.max_length=128", "format.max_length=128"]
    with pytest.raises(UsageError) as caught:
        check_contract(compose("pretrain", "roberta", words))
    said = str(caught.value)
    assert "noise.token_mask: no TokenMask with 128 positions" in said
    assert "objective.mlm: no MLM with 128 positions" in said
    assert "model.stack: no Stack with 128 positions" in said
    with pytest.raises(UsageError, match=r"model\.stack: no Stack"):  # beside mistakes of others
        check_contract(compose("pretrain", "roberta", [*words, "format.max_length=256"]))
