"""`compose`: what a command line means, and every mistake in it at once; a test for each trap of
Hydra that we step around.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.types import RunMode
from omegaconf import OmegaConf

from plmctl.config.command import all_commands
from plmctl.config.compose import compose, composed
from plmctl.config.composer import open_composer, store_recipe, to_plain
from plmctl.config.make_spec import make_spec
from plmctl.config.quoting import quote
from plmctl.config.recipes import conf_dir, recipes_dir
from plmctl.config.spec import Provenance, thaw
from plmctl.core.errors import ConfigError, ConfigErrors, UsageError
from plmctl.core.spelling import spell
from tests import probe

Compose = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compose:
    folder = probe.write(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    sys.modules.pop(probe.PLUGIN, None)

    def compose_probe(
        *overrides: str, recipe: str | None = "probe", verb: str = "pretrain", whole: bool = False
    ) -> Any:
        given = Provenance(verb, recipe, tuple(overrides), (folder,), (probe.PLUGIN,))
        made = composed(given)
        return made if whole else made.spec

    return compose_probe


def failure(run: Compose, *overrides: str, **more: Any) -> str:
    with pytest.raises(UsageError) as caught:
        run(*overrides, **more)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_every_leaf_of_a_recipe_arrives(run: Compose) -> None:
    recipe = OmegaConf.create(re.sub(r"defaults: .*\n", "", probe.PARTS["recipes/probe.yaml"]))
    cfg = thaw(run())

    def leaves(node: Any, found: Any) -> None:
        for key, value in node.items():
            if isinstance(value, dict):
                leaves(value, found[key])
            else:
                assert found[key] == value

    leaves(OmegaConf.to_container(recipe), cfg)
    assert cfg["size"]["width"] == 128
    assert list(cfg["objective"]) == ["mlm", "nsp"]
    assert cfg["recipe"] == cfg["run"]["name"] == "probe"


def test_what_shipped_files_made_is_remembered_and_each_config_is_its_own(tmp_path: Path) -> None:
    first = compose("pretrain", "bert", ["optim.lr=0.5"])
    with pytest.raises(AttributeError, match="a spec is never written to"):
        first.size.width = 7
    assert first.replace({"size.width": 7}).size.width == 7
    second = compose("pretrain", "bert", ["train.steps=3"])
    assert (second.size.width, second.train.steps) == (128, 3)
    assert second.optim.lr != 0.5
    mine = tmp_path / "bert.yaml"  # a user's file may change between two looks
    for seed in (5, 6):
        mine.write_text(
            f"# @package _global_\nseed: {seed}\ntrain: {{steps: 1}}\n", encoding="utf-8"
        )
        assert compose("pretrain", str(mine)).seed == seed


def test_the_command_line_wins_over_the_recipe(run: Compose) -> None:
    cfg = run(
        "optim.lr=1",
        "seed=2",
        "size=mini",
        "objective=[nsp,mlm]",
        "heads.nsp.tied=true",
        "train.batch_size=8",
    )
    assert (cfg.optim.lr, cfg.seed, cfg.size.width, cfg.train.batch_size, cfg.heads.nsp.tied) == (
        1,
        2,
        256,
        8,
        True,
    )
    assert list(cfg.objective) == ["nsp", "mlm"]


def test_order_of_noise_is_list_order_and_eval_noise_is_its_own(run: Compose) -> None:
    assert list(run("noise=[drop,token_mask]").noise) == ["drop", "token_mask"]
    cfg = run("noise=[drop]", "noise.drop.rate=0.4")
    assert list(cfg.noise) == ["drop"]
    assert cfg.eval.noise.token_mask.rate == 0.15


@pytest.mark.parametrize("word", ["noise=null", "noise=[]", "~noise"])
def test_a_slot_can_be_emptied(run: Compose, word: str) -> None:
    made = run(word, whole=True)
    assert not made.spec.noise
    assert made.spec.provenance.removed == ("noise.token_mask.rate=0.2",)
    assert run("distill=null").distill is None


@pytest.mark.parametrize(
    "slot", ["tokenizer", "format", "pattern", "position", "model", "optim", "schedule"]
)
@pytest.mark.parametrize("word", ["{}=null", "~{}"])
def test_a_slot_that_a_run_needs_cannot(run: Compose, slot: str, word: str) -> None:
    assert f"{slot}: must be given\n  fix: {slot}=..." in failure(run, word.format(slot))


def test_a_group_of_settings_is_no_value(run: Compose) -> None:
    names = "dir, name, resume, trackers, plugins"
    told = f"run=null: is a group of settings: {names}\n  fix: # leave it out"
    assert failure(run, "run=null") == told
    assert failure(run, "eval=null").endswith("\n  fix: data.valid_share=0")
    assert re.search(r"share and \d+ more\n", failure(run, "train=null"))
    assert "fix: run.name=..." in failure(run, "run=name")
    answer = failure(
        run,
        "task=cola",
        "task.path=x",
        "checkpoint=null",
        "train.steps=1",
        "~optim",
        "heads=null",
        recipe=None,
        verb="finetune",
    )
    assert "- heads: must be given" in answer
    assert "- optim: must be given" in answer


def test_leftovers_of_replaced_parts_are_removed_and_named(run: Compose) -> None:
    made = run("objective=[mlm]", "optim=muon", "noise=[swap]", whole=True)
    assert sorted(made.spec.provenance.removed) == [
        "heads.nsp.tied=False",
        "noise.token_mask.rate=0.2",
        "optim.betas=[0.9, 0.98]",
    ]
    assert set(made.spec.heads) == {"mlm"}
    assert made.spec.optim.lr == 3e-4
    assert "Muon has no 'betas'" in failure(run, "optim=muon", "+optim.betas=[1,2]")


def test_the_shortcut_reaches_the_only_part_that_has_the_key(run: Compose) -> None:
    assert run("noise.rate=0.3").noise.token_mask.rate == 0.3
    assert run("noise=[swap,drop]", "noise.rate=0.3").noise.drop.rate == 0.3
    assert run("eval.noise.rate=0.3").eval.noise.token_mask.rate == 0.3
    assert "noise.token_mask.rate, noise.drop.rate" in failure(
        run, "noise=[token_mask,drop]", "noise.rate=0.3"
    )
    assert "there is no such setting" in failure(run, "noise=[swap]", "noise.rate=0.3")


def test_one_length_clears_the_recipes(run: Compose) -> None:
    train = run("train.minutes=1.5").train
    assert (train.minutes, train.steps, train.tokens, train.epochs) == (1.5, None, None, None)
    assert "exactly one of steps, tokens, words, epochs, minutes" in failure(
        run, "train.minutes=1", "train.steps=3"
    )
    assert "exactly one of" in failure(run, recipe=None)


def test_whole_floats_are_whole_numbers(run: Compose) -> None:
    cfg = run("train.steps=1e4", "train.clip=1")
    assert cfg.train.steps == 10_000
    assert type(cfg.train.steps) is int
    assert type(cfg.train.clip) is float
    assert "must be a whole number" in failure(run, "train.steps=1.5")


AWKWARD = [
    "a b/c d.txt",
    "语料/文本.txt",
    "données/é.txt",
    "a,b.txt",
    "data[0-9]*.txt",
    "{a,b}.txt",
    "[0-9]*",
    "a(1).txt",
    "it's.txt",
    'say "x".txt',
    "a=b.txt",
    "a:b",
    "50%.txt",
    "#1.txt",
    "a&b;c",
    "back\\slash",
    "tail\\",
    "a'b\\",
    "*.txt",
    "~name/x",
    "null.txt",
    "1e4",
    "true",
    "@x",
    "!x",
    "-x",
    " lead",
    "$HOME/x",
    "a\tb",
]


@pytest.mark.parametrize("key", ["data.path", "run.dir", "init", "data.valid_path", "format.path"])
@pytest.mark.parametrize("path", AWKWARD)
def test_awkward_paths_arrive_letter_by_letter(path: str, key: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for sweep in (False, True):
        if sweep and path == "a,b.txt":
            continue
        (override,) = OverridesParser.create().parse_overrides(
            [quote(f"{key}={path}", sweep=sweep)]
        )
        assert override.value() == path.strip() if sweep else path


def test_awkward_paths_through_hydra(run: Compose) -> None:
    cfg = run(
        "data.path=语 料/a,b [0-9]*{x}.txt", "run.dir=it's (1)", "init=a=b", "+format.path=x,y"
    )
    assert (cfg.data.path, cfg.run.dir, cfg.init, cfg.format.path) == (
        "语 料/a,b [0-9]*{x}.txt",
        "it's (1)",
        "a=b",
        "x,y",
    )
    assert run("init=null").init is None
    assert list(run("data.path=[a.txt,b c.txt]").data.path) == ["a.txt", "b c.txt"]
    assert list(run("data.path=[b c.txt]").data.path) == ["b c.txt"]
    assert run("run.dir=[b c]").run.dir == "[b c]"  # where a command writes is one folder
    assert run("data.path='quoted already'").data.path == "quoted already"


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("task.columns.text=正文", "正文"),
        ("task.label_names=[好, 坏,'又']", ["好", "坏", "又"]),
        ("seed=1", 1),
        ("task.columns.text=text", "text"),
        (
            "pretrain.overrides=[size=tiny, share={a: 1},'lr=1e-4,1e-3']",
            ["size=tiny", "share={a: 1}", "lr=1e-4,1e-3"],
        ),
        (
            """arms.x.finetune=["peft=[lora]",peft.lora.maps=[up,down],optim.lr=5e-3]""",
            ["peft=[lora]", "peft.lora.maps=[up,down]", "optim.lr=5e-3"],
        ),
    ],
)
def test_letters_that_hydras_grammar_lacks(word: str, value: object) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert OverridesParser.create().parse_overrides([quote(word)])[0].value() == value


@pytest.mark.parametrize("between", ["", " "])
def test_files_of_splits_are_a_mapping_however_it_is_spaced(between: str) -> None:
    files = {"train": "my file.tsv", "dev": "b.tsv"}
    word = f"{{train:{between}my file.tsv,{between}dev:{between}'b.tsv'}}"
    words = ["task=cola", f"task.path={word}", "checkpoint=x", "train.epochs=1"]
    assert compose("finetune", None, words).task.path == files
    assert quote(f"task.path={spell(files)}") == "task.path={train:'my file.tsv',dev:'b.tsv'}"


def test_home_is_expanded_unless_such_a_file_exists(
    run: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert run("data.path=~/text").data.path == "/home/somebody/text"
    Path("~").mkdir()
    Path("~/text").touch()
    assert run("data.path=~/text").data.path == "~/text"


def test_stages_are_a_list_of_dotted_settings(run: Compose) -> None:
    cfg = run("train.stages=[{share:0.9,format.max_length:128},{share:0.1,format.max_length:512}]")
    assert cfg.train.stages[1] == {"share": 0.1, "format.max_length": 512}


def test_commas_sweep_paths_only_with_multirun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert quote("data.path=a,b c") == "data.path='a,b c'"
    assert quote("data.path=a,b c", sweep=True) == "data.path='a','b c'"
    assert quote("data.path={a,b},c", sweep=True) == "data.path='{a,b}','c'"
    assert quote("run.dir=a,b", sweep=True) == "run.dir='a,b'"
    assert quote("out=a,b", sweep=True) == "out='a,b'"
    assert quote("data.path=choice(a,b)", sweep=True) == "data.path=choice(a,b)"
    (tmp_path / "a,b").touch()
    assert quote("data.path=a,b", sweep=True) == "data.path='a,b'"


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("train.batchsize=3", "did you mean 'train.batch_size'?"),
        ("batch_size=3", "did you mean 'train.batch_size' or 'eval.batch_size'?"),
        ("optm.lr=3", "did you mean 'optim.lr'?"),
        ("optim.lrr=3", "did you mean 'optim.lr'?"),
        ("size=tny", "did you mean 'tiny'?"),
        ("optim=adam", "there is no such optim (did you mean 'adamw'?); there are"),
        ("objective=[mlm,nps]", "did you mean 'nsp'?"),
        ("optim.lr=abc", "optim.lr='abc': must be a number"),
        ("train.precision=bf17", "did you mean 'bf16'?"),
        ("train.keep_best=maybe", "must be true or false"),
        ("+train.stepz=3", "did you mean 'train.steps'?"),
        ("+optm=3", "did you mean 'optim'?"),
        ("train=3", "is a group of settings"),
        ("size.widht=3", "did you mean 'size.width'?"),
        ("size.heads=3", "did you mean 'size.num_heads'?"),
        ("train.batch=3", "did you mean 'train.batch_size'?"),
        ("+size.depth=3", "no such number"),
        ("optim.lr=[1", "cannot be read"),
        ("optim.lr=1,2", "fix: -m"),
        ("hydra.sweep.dir=x", "need -m/--multirun"),
        ("tiny", "key=value"),
        ("seed=x", "seed='x': must be a whole number"),
        ("~optim.nothing", "no such setting"),
        ("model.width=${nowhere}", "nowhere"),
        ("objective.mlm.shrap=3", "did you mean 'objective.mlm.sharp'?"),
        ("+objective.mlm.sharp=3", "must be true or false"),
        (
            "objective=[mlm,nsp,mlm]",
            "mlm is named twice, and counts once\n  fix: 'objective=[mlm,nsp]'",
        ),
    ],
)
def test_a_mistake_is_answered(run: Compose, word: str, answer: str) -> None:
    assert answer in failure(run, word)


def test_a_setting_that_refers_to_what_a_chosen_part_lacks(run: Compose) -> None:
    with pytest.raises(
        ConfigError, match=r"refers to format\.reuse_length, and format=blocks has"
    ) as caught:
        run("format=blocks", recipe="xlnet")
    assert caught.value.value == "${format.reuse_length}"
    assert "fix: noise.factorization_order.block=VALUE  # or leave out format=blocks" in str(
        caught.value
    )


def test_several_mistakes_are_reported_together(run: Compose) -> None:
    with pytest.raises(ConfigErrors) as caught:
        run(
            "train.stepz=3",
            "optim=adamm",
            "optim.lr=abc",
            "size=tny",
            "train.precision=bf17",
            "seed=[1",
        )
    text = str(caught.value)
    assert len(caught.value.errors) == 6
    for word in ("train.stepz", "adamw", "optim.lr", "tiny", "bf16", "seed"):
        assert word in text


def test_what_a_misspelled_part_leaves_missing_is_no_mistake_of_its_own(run: Compose) -> None:
    given = ("task=sst", "task.path=glue", "checkpoint=runs/wiki")
    assert failure(run, *given, recipe=None, verb="finetune").startswith(
        "task='sst': there is no such task (did you mean 'sst2'?)"
    )
    assert "did you mean 'train.clip'" in failure(
        run, *given, "train.clipp=1", recipe=None, verb="finetune"
    )
    text = failure(run, "optim=lam", "optim.trust=1", "optim.lr=abc")
    assert "optim='lam'" in text
    assert "optim.trust" not in text
    assert "optim.lr='abc'" in text


def test_mistakes_in_a_recipe_are_found(run: Compose, tmp_path: Path) -> None:
    file = tmp_path / "mine é.yaml"
    file.write_text(
        "trian: {steps: 3}\ntrain: {steps: 5, batchsize: 1}\noptim: {lrr: 1}\nsize: {widht: 3}\n",
        encoding="utf-8",
    )
    text = failure(run, recipe=str(file))
    for name in ("train", "train.batch_size", "lr", "width"):
        assert f"did you mean '{name}'?" in text
    file.write_text("train: {steps: 5}\nseed: 4\n", encoding="utf-8")
    cfg = run(recipe=str(file))
    assert (cfg.seed, cfg.train.steps, cfg.run.name) == (4, 5, "mine é")
    file.write_text("train: {steps: 5\n", encoding="utf-8")
    assert "not readable as YAML" in failure(run, recipe=str(file))
    file.write_text("defaults: [{override /optim: adm}]\ntrain: {steps: 5}\n", encoding="utf-8")
    assert "there is no optim 'adm'" in failure(run, recipe=str(file))


def test_unknown_recipes_and_folders(run: Compose) -> None:
    assert "did you mean 'probe'?" in failure(run, recipe="prob")
    assert "there is no such file" in failure(run, recipe="./none.yaml")
    with pytest.raises(UsageError, match="no such folder"):
        compose("pretrain", None, [], config_dirs=["nowhere"])
    assert "recipes are for pretrain" in failure(run, "out=x", recipe="probe", verb="tokenize")


def test_what_must_be_given(run: Compose) -> None:
    assert "out: must be given" in failure(run, recipe=None, verb="tokenize")
    text = failure(run, "train.steps=3", recipe=None, verb="finetune")
    assert "checkpoint: must be given" in text
    assert "task: must be given" in text
    assert "task.path: must be given" in failure(
        run, "train.steps=3", "task=cola", "checkpoint=null", recipe=None, verb="finetune"
    )
    cfg = run(
        "train.steps=3",
        "task=cola",
        "task.path=a, b",
        "checkpoint=null",
        recipe=None,
        verb="finetune",
    )
    assert (cfg.checkpoint, cfg.task.path) == (None, "a, b")


def test_a_parameter_that_the_file_leaves_out_can_be_set(run: Compose) -> None:
    assert run("model.layout=af*3").model.layout == "af*3"
    assert run("objective.mlm.sharp=true").objective.mlm.sharp is True
    assert "must be true or false" in failure(run, "objective.mlm.sharp=3")


def test_folders_with_spaces_and_other_letters(run: Compose, tmp_path: Path) -> None:
    folder = tmp_path / "mes pièces, 部件 [1]"
    (folder / "size").mkdir(parents=True)
    (folder / "size" / "pico.yaml").write_text(
        "num_layers: 1\nwidth: 8\nnum_heads: 1\ninner_width: 16\n", encoding="utf-8"
    )
    cfg = compose(
        "pretrain",
        "probe",
        ["size=pico"],
        config_dirs=[str(folder), str(tmp_path / "conf")],
        plugins=[probe.PLUGIN],
    )
    assert cfg.model.width == 8


def test_a_part_file_of_the_user_is_read_anew(run: Compose, tmp_path: Path) -> None:
    assert run().model.width == 128
    file = tmp_path / "conf/size/tiny.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("128", "64"), encoding="utf-8")
    assert run().model.width == 64


def test_what_a_recipe_sets_stays_its_own() -> None:
    """Shipped files are parsed once; no composition changes what the next one gets."""
    both = ["objective=[mlm,nsp]", "format=sentence_pair"]
    assert compose("pretrain", "bert", ["kernel=banded"]).heads.mlm.eps == 1e-12
    assert compose("pretrain", "roberta", [*both, "kernel=banded"]).heads.mlm.eps == 1e-5
    assert compose("pretrain", "bert", ["kernel=dense"]).heads.mlm.eps == 1e-12
    assert "nsp" not in compose("pretrain", "roberta", ["kernel=dense"]).heads


def test_defaults_fit_their_own_types() -> None:
    for verb, kind in all_commands().items():
        _, errors = make_spec(verb, thaw(kind()))
        assert all("must be given" in str(error) for error in errors)


def test_composing_leaves_no_global_hydra(run: Compose) -> None:
    from hydra.core.global_hydra import GlobalHydra

    run()
    assert not GlobalHydra.instance().is_initialized()


def test_the_shipped_folders_are_found() -> None:
    assert (conf_dir() / "pretrain.yaml").is_file()
    assert recipes_dir().is_dir()


def test_config_errors_carry_their_path(run: Compose) -> None:
    with pytest.raises(ConfigError) as caught:
        run("optim.lr=abc")
    assert (caught.value.path, caught.value.value) == ("optim.lr", "abc")


@pytest.mark.parametrize(
    ("verb", "word", "answer"),
    [
        (
            "pretrain",
            "features=mix",
            "features=: plmctl pretrain chooses no such part; it belongs to plmctl finetune",
        ),
        ("predict", "format=blocks", "it belongs to plmctl data check, "),
        ("pretrain", "model.stack.cells={x:1}", "there is no 'x' there"),
        ("finetune", "task.search=beam", "fix: search@task.search=beam"),
        ("finetune", "task.pair_loss=angle", "fix: pair_loss@task.loss=angle"),
        ("pretrain", "noise.text_infill.rate=0.3", "'noise=[token_mask,text_infill]' noise.text"),
        ("pretrain", "train.steps=1.5", "fix: train.steps=2"),
        ("pretrain", "train.steps=0.2", "fix: train.steps=1"),
        (
            "finetune",
            "task.search.temperature=2",
            "fix: search@task.search=sample task.search.temperature=2",
        ),
        ("generate", "search.temprature=2", "there is no such setting"),
    ],
)
def test_a_choice_that_another_command_has(verb: str, word: str, answer: str) -> None:
    task = "task=sentence_scores" if "loss" in word else "task=translation"
    with pytest.raises(UsageError) as refused:
        compose(verb, None, [task, word] if word.startswith("task.") else [word])
    assert answer in str(refused.value)
    assert "append" not in str(refused.value)


def test_a_misspelt_segmenter_is_refused_with_the_config():
    with pytest.raises(
        UsageError,
        match=r"tokenizer\.segment='jiba': must be one of jieba, jieba_hmm or null \(did you mean",
    ):
        compose("tokenize", None, ["tokenizer=wordpiece", "tokenizer.segment=jiba", "out=x"])


def test_a_slot_that_holds_no_part_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("heads: [x]\nmodel: y\n")
    with pytest.raises(ConfigErrors) as found:
        compose("ablate", str(file))
    assert "heads=['x']: is a group of parts, each under its name" in str(found.value)
    assert "model='y': is a group of settings" in str(found.value)


def test_halves_of_surrogate_pairs_in_json() -> None:
    from plmctl.storage.reading import parse_json

    assert parse_json(r'{"a\ud800": ["\uD83D\uDE00", "\udfff", 1]}') == {
        "a\ufffd": ["\U0001f600", "\ufffd", 1]
    }


@pytest.mark.parametrize(
    "words",
    [
        ["recipe=bert", "objective=[mlm,nsp]", "size=mini"],
        ["recipe=kepler", "optim=muon"],
        ["recipe=transformer", "noise=[]", "~tokenizer"],
    ],
)
def test_the_settings_of_hydra_itself_change_nothing_of_ours(words: list[str]) -> None:
    with open_composer("pretrain") as composer:
        store_recipe(words[0].removeprefix("recipe="))
        whole = composer._hydra.compose_config("pretrain", words, RunMode.RUN)
        own = composer.compose(words)
    assert "hydra" in whole
    assert "hydra" not in own
    assert json.dumps(to_plain(own)) == json.dumps(to_plain(whole))  # also in their order


def test_what_a_recipe_says_to_hydra_is_still_read(tmp_path: Path) -> None:
    text = (recipes_dir() / "bert.yaml").read_text(encoding="utf-8")
    for words, message in (("{sweep: {dir: mine}}", ""), ("{swept: 1}", "swept")):
        file = tmp_path / f"own{len(message)}.yaml"
        file.write_text(f"{text}\nhydra: {words}\n", encoding="utf-8")
        if message:
            with pytest.raises(UsageError, match=message):
                compose("pretrain", str(file))
        else:
            assert compose("pretrain", str(file)).size.width == 128


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["stabiliser=[ema]", "stabiliser.ema=2"], "stabiliser.ema=2: a part, which has settings"),
        (["regulariser=[fgm,freelb]"], "one part, not 2"),
    ],
)
def test_a_value_is_no_part_and_one_part_no_list(words: list[str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        compose("finetune", None, ["task=sst2", "task.path=x", "checkpoint=null", *words])
    assert told in str(error.value)
