"""Arms x seeds x stages: what is shared, what makes another job, and arms that must not be
compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from plmctl.config.recipes import find_recipe
from plmctl.config.spec import Provenance
from plmctl.core.errors import UsageError
from plmctl.jobs.job import resolve
from plmctl.runs.word_ratio import WordRatio, guess_ratio
from plmctl.study import plan as planning
from plmctl.study.costs import ESTIMATED, MEASURED, SCALED, estimate_costs, spell_tuning_lengths
from plmctl.study.plan import StudyPlan
from plmctl.study.prospects import list_prospects
from plmctl.study.show import _make_cost_table
from plmctl.study.study import Study
from tests.study import toy_study

Planned = Callable[..., StudyPlan]


def count(plan: StudyPlan, verb: str) -> int:
    return sum(job.verb == verb for job in plan.jobs.values())


def counts(plan: StudyPlan) -> tuple[int, ...]:
    return tuple(count(plan, verb) for verb in ("tokenize", "pretrain", "finetune", "eval"))


def message(planned: Planned, **changes: Any) -> str:
    with pytest.raises(UsageError) as error:
        planned(**changes)
    return str(error.value)


def finetune(**changes: Any) -> dict[str, Any]:
    return {**toy_study.STUDY["finetune"], **changes}


def metrics(key: str, of: str = "pretrain") -> dict[str, Any]:
    return {"a": {"of": of, "key": key}}


def test_what_arms_share_is_done_once(planned: Planned) -> None:
    plan = planned(
        finetune=finetune(grid=["optim.lr=1e-2,1e-3,1e-4"], restarts={"order": 2, "head": 1})
    )
    assert counts(plan) == (1, 4, 4 * 3 * 2, 0)
    (tokens,) = (name for name in plan.jobs if name.startswith("tokenize"))
    for cell in plan.cells:
        assert cell.pretrain is not None
        assert plan.jobs[cell.pretrain].needs == (tokens,)
        assert {plan.jobs[name].needs for restarts in cell.tuned["toy"] for name in restarts} == {
            (cell.pretrain,)
        }
    seeds = {
        (job.config["seed"], job.config["head_seed"])
        for job in plan.jobs.values()
        if job.verb == "finetune"
    }
    assert seeds == {(0, 0), (1, 0), (1000, 1000), (1001, 1000)}
    labels = {job.label for job in plan.jobs.values() if job.verb == "finetune"}
    assert len(labels) == 4 * 3
    assert all(label.startswith("toy (optim.lr=") and ") of " in label for label in labels), labels


def test_arms_that_differ_in_fine_tuning_share_the_pretraining(planned: Planned) -> None:
    arms = {"slow": [], "fast": {"finetune": ["optim.weight_decay=0.1"]}}
    assert counts(planned(arms=arms)) == (1, 2, 4, 0)


def test_a_text_that_is_read_as_a_stream_is_not_tokenized_before(
    planned: Planned, here: Path, tokens_of: Callable[..., Path]
) -> None:
    (here / "rows.jsonl").write_text('{"text": "the cat sees a bird."}\n' * 50)
    words = [*(word for word in toy_study.SMALL if "vocab_size" not in word), "data.window=500"]
    words += ["data.streaming=true", f"tokenizer.path={tokens_of('wordpiece')}/tokenizer"]
    data = {"path": "rows.jsonl", "valid_path": "corpus.txt"}
    arms = {"slow": [], "fast": {"pretrain": False}}
    plan = planned(pretrain={"recipe": "roberta", "overrides": words}, data=data, arms=arms)
    assert counts(plan) == (0, 2, 4, 0)
    for job in (job for job in plan.jobs.values() if job.verb == "pretrain"):
        own = job.config["data"]
        assert (own["path"], own["streaming"], own["window"]) == ("rows.jsonl", True, 500)
        assert own["valid_path"] == "corpus.txt"


def test_sources_of_one_text_share_its_tokens(planned: Planned) -> None:
    unilm = {"recipe": "unilm", "overrides": toy_study.SMALL}
    plan = planned(pretrain=unilm, metrics=metrics("loss"))
    assert counts(plan) == (1, 4, 4, 0)
    for job in (job for job in plan.jobs.values() if job.verb == "pretrain"):
        assert job.config["data"]["path"].startswith("job:tokenize-")
        assert len(job.config["data"]["sources"]) == 4


def test_without_pretraining(planned: Planned) -> None:
    plan = planned(arms={"slow": [], "fast": {"pretrain": False}})
    assert counts(plan) == (1, 2, 4, 0)
    scratch = [plan.jobs[name] for cell in plan.cells if cell.arm == "fast" for name in cell.jobs]
    assert all(
        job.config["checkpoint"] is None and job.config["size"]["width"] == 32 for job in scratch
    )
    assert {job.config["tokenizer"]["path"] for job in scratch} == {
        f"job:{name}" for name in plan.jobs if "token" in name
    }


def test_evaluations(planned: Planned, here: Path) -> None:
    text = {
        "of": "pretrain",
        "overrides": ["task=lm", "data.path=corpus.txt", "task.pseudo_tokens=0"],
    }
    plan = planned(eval={"text": text, "train": {"of": "toy", "overrides": ["split=train"]}})
    assert counts(plan) == (1, 4, 4, 8)
    first = plan.cells[0].tuned["toy"][0][0]
    assert any(first in job.needs for job in plan.jobs.values())
    assert plan.cells[0].jobs[-1] in plan.behind(plan.cells[0])


def test_keys_follow_content(planned: Planned, here: Path) -> None:
    def keys(**changes: Any) -> dict[str, set[str]]:
        jobs = planned(**changes).jobs
        return {
            verb: {name for name in jobs if name.startswith(verb)}
            for verb in ("tokenize", "pretrain", "finetune")
        }

    before = keys()
    assert keys() == before
    logged = [
        *toy_study.SMALL,
        "train.log_every=7",
        "train.save_every=5",
        "data.cache_dir=/elsewhere",
    ]
    assert keys(pretrain={"recipe": "roberta", "overrides": logged}) == before
    other = keys(arms={"slow": ["optim.lr=1e-3"], "fast": ["optim.lr=2e-2"]})
    assert other["tokenize"] == before["tokenize"]
    assert len(other["pretrain"] & before["pretrain"]) == 2
    assert len(other["finetune"] & before["finetune"]) == 2
    (here / "task" / "dev.tsv").write_text(
        (here / "task" / "dev.tsv").read_text() + "one more cat bad\t0\n"
    )
    labelled = keys()
    assert (labelled["pretrain"], len(labelled["finetune"] & before["finetune"])) == (
        before["pretrain"],
        0,
    )
    (here / "corpus.txt").write_text((here / "corpus.txt").read_text() + "\n\nOne more document.\n")
    assert not keys()["pretrain"] & before["pretrain"]


def test_a_study_may_move(planned: Planned, here: Path) -> None:
    before = list(planned().jobs)
    (here / "elsewhere").mkdir()
    (here / "corpus.txt").rename(here / "elsewhere" / "corpus.txt")
    assert list(planned("data.path=elsewhere/corpus.txt").jobs) == before


def test_placeholders_become_folders() -> None:
    config = {"checkpoint": "job:pretrain-1", "n": 1, "more": [{"path": "job:tokenize-2"}, "job"]}
    runs = {"pretrain-1": "/a", "tokenize-2": "/b"}
    assert resolve(config, runs) == {"checkpoint": "/a", "n": 1, "more": [{"path": "/b"}, "job"]}


def test_flops_become_each_arms_tokens(planned: Planned) -> None:
    plan = planned(arms={"slow": [], "fast": ["size.width=64"]}, budget={"flops": 1e10})
    tokens = {name: each.pretrain["train"]["tokens"] for name, each in plan.arms.items()}
    assert all(
        tokens[name] * each.flops_per_token == pytest.approx(1e10, rel=1e-3)
        for name, each in plan.arms.items()
    )
    assert tokens["fast"] < tokens["slow"]


def test_a_rate_that_goes_with_the_noise_of_the_baseline_is_named(planned: Planned) -> None:
    study = {**toy_study.STUDY["pretrain"], "recipe": "babylm_masked"}
    arms = {
        "masks": [],
        "spans": ["noise=[span_mask]"],
        "same": ["noise=[span_mask]", "noise.span_mask.rate=0.3"],
        "faster": ["optim.lr=1e-3"],
    }
    lines = list_prospects(
        planned(
            pretrain=study, arms=arms, baseline="masks", metrics=metrics("loss/mlm"), finetune={}
        )
    )
    found = [line for line in lines if "noise." in line]
    assert len(found) == 1
    assert found[0].startswith("arm 'spans': noise.span_mask.rate=0.15, where the baseline has 0.3")


def test_the_scores_of_a_probe_are_known_before(planned: Planned, here: Path) -> None:
    rows = ["good\tbad\tUID", "a cat runs\ta cat run\tverbs"]
    (here / "pairs.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    node = {"of": "pretrain", "task": "minimal_pairs", "path": "pairs.tsv"}

    def change(key: str) -> dict[str, Any]:
        return {"eval": {"pairs": node}, "metrics": {"a": {"of": "pairs", "key": key}}}

    found = message(planned, **change("acuracy"))
    assert "metrics.a.key='acuracy': eval 'pairs' does not produce it" in found
    assert "did you mean 'accuracy'" in found
    assert planned(**change("pairs")).study.metrics["a"].key == "pairs"


def test_minimal_pairs_of_validation_are_a_metric_of_all_tokens(
    planned: Planned, here: Path
) -> None:
    wanted = metrics("acc/minimal_pairs")
    assert "does not produce it" in message(planned, metrics=wanted)
    rows = ["good\tbad\tUID", "a cat runs\ta cat run\tverbs"]
    (here / "pairs.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    words = [*toy_study.SMALL, "eval.minimal_pairs=pairs.tsv"]
    arms = {"slow": [], "other": ["tokenizer=wordpiece"]}
    given = {"pretrain": {"recipe": "roberta", "overrides": words}, "arms": arms, "finetune": {}}
    (metric,) = planned(**given, metrics=wanted).study.metrics.values()
    assert (metric.series, metric.lower_is_better) == ("valid/acc/minimal_pairs", False)


def test_an_arm_without_the_loss_is_left_out_of_its_column(planned: Planned) -> None:
    """The causal arm validates on other questions, and needs none of the masked ones."""
    arms = {"slow": [], "fast": ["optim.lr=1e-2"], "causal": {"recipe": "gpt2"}}
    shared = {"recipe": "roberta", "overrides": toy_study.SMALL}
    plan = planned(arms=arms, pretrain=shared, metrics=metrics("loss/mlm"))
    (line,) = [line for line in list_prospects(plan) if "left out" in line]
    assert any("2 seeds and 1 comparison find" in line for line in list_prospects(plan))
    assert line == "loss/mlm is no metric of 'causal': it is left out of the column"
    both = {"b": {"of": "pretrain", "key": "loss/mlm"}, **metrics("loss/clm")}
    assert len(planned(arms=arms, pretrain=shared, metrics=both).study.metrics) == 2
    alone = planned(arms=arms, pretrain=shared, metrics=metrics("loss/clm"))  # one arm's
    left = [line for line in list_prospects(alone) if "left out" in line]
    assert left == [
        f"loss/clm is no metric of '{n}': it is left out of the column" for n in ("slow", "fast")
    ]
    assert not any("comparison find" in line for line in list_prospects(alone))
    expected = {"a": {"of": "pretrain", "key": "loss/clm", "expect": {"causal": "lower"}}}
    told = message(planned, arms=arms, pretrain=shared, metrics=expected)
    assert "arm 'slow' does not produce it" in told
    found = message(planned, arms=arms, pretrain=shared, metrics=metrics("loss/mml"))
    assert "arm 'slow' does not produce it" in found
    assert not any(word in found for word in ("eval.noise", "tokenizers"))


def test_words_are_planned_by_the_size_of_the_vocabulary(planned: Planned) -> None:
    plan = planned(budget={"words": 1000})
    costs = estimate_costs(plan)
    guess = guess_ratio(300)
    assert {each["tokens"] for each in costs} == {round(1000 * guess.tokens)}
    assert all(each["flops"] > 0 for each in costs)
    title = str(_make_cost_table(costs, 2).title)
    assert f"about ({guess.tokens:.3g} tokens a word, a guess from 300 tokens of" in title
    done = make_done(tokens={"fast": 1700}, ratio=WordRatio(2.5))
    known = estimate_costs(plan, done)
    assert [each["tokens"] for each in known] == [2500, 1700]
    assert known[1]["flops"] == pytest.approx(costs[1]["flops"] * 1700 / costs[1]["tokens"])
    assert "about (2.5 tokens a word; runs that are done" in str(_make_cost_table(known, 2).title)
    by_steps = planned()
    assert estimate_costs(by_steps, done)[0]["tokens"] == 24 * 8 * 32
    assert "about" not in str(_make_cost_table(estimate_costs(by_steps), 2).title)


def make_done(
    tokens: dict[str, float] | None = None,
    ratio: WordRatio | None = None,
    clocks: dict[str, dict[str, float]] | None = None,
) -> Any:
    """The results of runs that are done."""
    return SimpleNamespace(
        cost=lambda arm: {"tokens": (tokens or {}).get(arm)},
        find_ratio=lambda arm: ratio,
        clock=lambda arm: (clocks or {}).get(arm, {}),
    )


def test_seconds_of_done_runs_count_before_the_speed_of_the_device(planned: Planned) -> None:
    """One arm has run for 30 s; another of twice the length is scaled by its FLOPs."""
    arms = {"slow": {}, "long": {"times": 2}}
    plan = planned(arms=arms, metrics=metrics("loss/mlm"))
    guess = estimate_costs(plan)
    assert {cost["from"]["pretrain"] for cost in guess} == {ESTIMATED}
    # 24 updates take 10 ms each at least
    assert guess[0]["seconds"] > 0.24
    assert guess[0]["tuning"]["toy"] > 64 / 8 * 4 * 0.01
    clocks = {"slow": {"pretrain": 30.0, "toy": 3.0}, "long": {}}
    slow, long = estimate_costs(plan, make_done(clocks=clocks))
    assert (slow["seconds"], slow["from"]) == (30.0, {"pretrain": MEASURED, "toy": MEASURED})
    assert (long["seconds"], long["tuning"]) == (pytest.approx(60.0), {"toy": pytest.approx(3.0)})
    assert long["from"] == {"pretrain": SCALED, "toy": SCALED}
    shown = _make_cost_table([slow, long], 2)
    assert [*shown.columns[-1].cells][:2] == [MEASURED, SCALED]


def test_arms_that_their_model_cannot_take(planned: Planned) -> None:
    """What a job would refuse at its start is said before any job, all of it at once."""
    arms = {
        "full": {},
        "biases": {"finetune": ["peft=bitfit"]},
        "frozen": {"finetune": ["train.frozen=[towers]"]},
    }
    pretrain = {"recipe": "modern_encoder", "overrides": ["size=tiny"]}
    error = message(
        planned, arms=arms, baseline="full", pretrain=pretrain, metrics=metrics("loss/mlm")
    )
    assert "arm 'biases': peft.bitfit.biases=True: something to train" in error
    assert "arm 'frozen': train.frozen='towers': matches no parameter" in error


def test_a_task_is_named_where_an_arm_fits_the_others(planned: Planned, here: Path) -> None:
    (here / "tags").mkdir()
    for split in ("train", "dev"):
        (here / "tags" / f"{split}.txt").write_text("Anna B-PER\nsings O\n\n", encoding="utf-8")
    tasks = {
        **toy_study.STUDY["finetune"]["tasks"],
        "tags": {"task": "tagging", "path": str(here / "tags")},
    }
    arms = {"first": {}, "mean": {"finetune": ["row_pooling=mean"]}}
    error = message(
        planned,
        arms=arms,
        baseline="first",
        finetune=finetune(tasks=tasks),
        metrics=metrics("loss/mlm"),
    )
    assert error.startswith("arm 'mean' on task 'tags': row_pooling='mean': null: this task")


def test_all_arms_that_do_not_compose(planned: Planned) -> None:
    arms = {
        "slow": [],
        "fast": ["optim.lr=abc"],
        "third": ["size=tiney"],
        "fourth": ["objective=nsp"],
    }
    found = message(planned, arms=arms)
    assert "arm 'fast': optim.lr" in found
    assert "arm 'third': size='tiney'" in found
    assert "arm 'fourth'" in found
    assert "arm 'slow'" not in found


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"arms": {"slow": ["optim.lr=1e-3"], "fast": ["optim.lr=0.001"]}},
            ["arms.fast", "same model as 'slow': optim.lr=0.001 is what 'slow' has, too"],
        ),
        (
            {"arms": {"slow": ["noise.token_mask.rate=0.15"], "fast": []}},
            ["arms.fast", "'slow': noise.token_mask.rate=0.15 is what 'fast' has, too"],
        ),
        (
            {"arms": {"slow": [], "fast": ["train.log_every=3"]}},
            ["arms.fast", "same model as 'slow': train.log_every=3 changes nothing of 'slow'"],
        ),
        (
            {"metrics": metrics("f1", "toy")},
            ["metrics.a.key='f1'", "task 'toy'", "accuracy, loss, macro_f1"],
        ),
        ({"metrics": metrics("loss/nsp")}, ["metrics.a.key='loss/nsp'", "arm 'slow'", "loss/mlm"]),
        (
            {"arms": {"slow": [], "fast": ["train.steps=99"]}},
            ["train.steps='99'", "budget is the same"],
        ),
        (
            {"arms": {"slow": [], "fast": ["data.valid_share=0.2"]}},
            ["arm 'fast': data.valid_share", "data.valid_path"],
        ),
        (
            {"arms": {"slow": [], "fast": ["data.segment=jieba"]}},
            [
                "arm 'fast': data.segment='jieba'",
                "'slow' has null",
                "fix: 'pretrain.overrides=[data.segment=jieba]'"
                "  # in addition to its settings, for all arms",
            ],
        ),
        (
            {"arms": {"slow": [], "fast": ["eval.noise.token_mask.rate=0.3"]}},
            ["arm 'fast': eval.noise", "same for all arms"],
        ),
        (
            {"arms": {"slow": [], "fast": ["tokenizer=bpe"]}},
            ["different tokenizers", "key: bits_per_byte/mlm"],
        ),
        ({"finetune": finetune(overrides=[])}, ["task.max_length=128", "at most 32"]),
        ({"arms": {"slow": [], "fast": {"finetune": ["size=mini"]}}}, ["arm 'fast': size='mini'"]),
        (
            {"finetune": finetune(tasks={"toy": {"task": "classification", "path": "none"}})},
            ["finetune.tasks.toy", "none"],
        ),
        ({"stop": {"metric": "valid/los", "after": 0.5, "bound": 9}}, ["stop.metric='valid/los'"]),
    ],
)
def test_what_would_make_figures_meaningless(
    planned: Planned, changes: dict[str, Any], words: list[str]
) -> None:
    found = message(planned, **changes)
    assert all(word in found for word in words), found


def test_a_metric_that_a_task_could_have_is_added_by_a_line_of_the_file(planned: Planned) -> None:
    told = message(planned, metrics=metrics("matthews", "toy"))
    line, _, place = told.partition("fix: # ")[2].partition(" in ")
    assert place == "finetune.tasks.toy"
    toy = {**toy_study.STUDY["finetune"]["tasks"]["toy"], **yaml.safe_load(line)}
    planned(metrics=metrics("matthews", "toy"), finetune=finetune(tasks={"toy": toy}))
    assert "fix:" not in message(planned, metrics=metrics("bleu", "toy"))


def test_arms_may_make_other_rows_of_a_source_but_not_hold_out_others(planned: Planned) -> None:
    """A control of what KEPLER reads beside the text changes its rows; the texts stay."""
    kepler = {"recipe": "kepler", "overrides": toy_study.SMALL}
    key = "data.sources.triples"
    rows = {"slow": [], "fast": [f"{key}.format.random=0"]}
    assert counts(planned(pretrain=kepler, arms=rows))[1] == 4
    texts = {"slow": [], "fast": [f"{key}.path=corpus.txt"]}
    told = message(planned, pretrain=kepler, arms=texts)
    assert "arm 'fast': data.sources" in told
    assert "validation is the same for all arms" in told


def test_other_tokenizers_compare_in_bits_per_byte(planned: Planned) -> None:
    plan = planned(
        arms={"slow": [], "fast": ["tokenizer=bpe"]}, metrics=metrics("bits_per_byte/mlm")
    )
    assert counts(plan) == (2, 4, 4, 0)


def test_validation_reads_all_held_out_rows_by_default(planned: Planned) -> None:
    assert planned().arms["slow"].pretrain["eval"]["rows"] is None
    fewer = {"recipe": "roberta", "overrides": [*toy_study.SMALL, "eval.rows=8"]}
    assert planned(pretrain=fewer).arms["slow"].pretrain["eval"]["rows"] == 8


@pytest.mark.slow  # a matter of time, not of results
def test_many_cells_are_planned_quickly(parsed: Callable[..., Study]) -> None:
    """Arms of equal choices are composed by value alone: a tenth of a second each."""
    arms = {"slow": [], **{f"arm{n}": [f"optim.lr={n}e-5"] for n in range(1, 10)}}
    study = parsed(arms=arms, seeds=[0, 1, 2, 3], metrics=metrics("loss"))
    began = time.process_time()
    plan = planning.plan(study, Provenance("ablate"))
    assert (len(plan.cells), counts(plan)) == (40, (1, 40, 40, 0))
    assert time.process_time() - began < 20


def test_arms_of_tokenizers_over_tokens_are_refused(
    planned: Planned, tokens_of: Callable[..., Path]
) -> None:
    """They would be one arm, and differ by nothing."""
    tokens = tokens_of("wordpiece")
    arms = {
        "one": ["tokenizer=byte_bpe"],
        "other": ["tokenizer=wordpiece", "tokenizer.vocab_size=300"],
    }
    common = {"recipe": "roberta", "overrides": toy_study.SMALL}
    told = message(
        planned,
        arms=arms,
        baseline="one",
        pretrain=common,
        data={"path": str(tokens)},
        metrics=metrics("bits_per_byte/mlm"),
    )
    assert f"arm 'one': tokenizer='byte_bpe': the tokens of {tokens} decide this: wordpiece" in told
    assert f"arm 'other': tokenizer.vocab_size=300: the tokens of {tokens} decide this: 600" in told


def test_the_length_of_a_fine_tuning_is_that_of_its_updates(planned: Planned) -> None:
    """64 examples in rows of 8 are 16 updates in 2 epochs, fewer than least_steps asks for."""
    words = ["task.max_length=16", "train.batch_size=8", "train.steps=null", "train.epochs=2"]
    grid = ["train.least_steps=10,500"]
    plan = planned(finetune={**toy_study.STUDY["finetune"], "overrides": words, "grid": grid})
    assert spell_tuning_lengths(plan) == {
        "toy": "2.0 epochs of 8 rows an update or 500 updates of 8 rows by train.least_steps,"
        " 2.0 epochs are fewer"
    }


@pytest.mark.parametrize(
    ("shared", "word", "why"),
    [
        ("model.stack.layout=af*2", "size.num_layers=4", "no part takes size.num_layers"),
        ("schedule.warmup_steps=20", "schedule.warmup_steps=9", "schedule.warmup_limit cuts both"),
        ("optim.lr=1e-3", "optim.lr=1e-2", "is replaced by optim.lr=0.001"),
    ],
)
def test_arms_whose_words_act_nowhere_are_one_model(
    planned: Planned, shared: str, word: str, why: str
) -> None:
    """`size` acts through references; 24 updates have 2.4 of warm-up at most."""
    pretrain = {"recipe": "roberta", "overrides": [*toy_study.SMALL, shared]}
    again = ["optim.lr=0.001"] if "replaced" in why else []
    arms: dict[str, Any] = {"slow": [], "fast": [word, *again]}
    found = message(planned, pretrain=pretrain, arms=arms)
    assert f"arms.fast: is the same model as 'slow': {word}" in found
    assert why in found


def test_one_recipe_by_two_names_is_one_model(planned: Planned, here: Path) -> None:
    (here / "own.yaml").write_text(find_recipe("roberta").read_text(), encoding="utf-8")
    arms: dict[str, Any] = {"slow": [], "fast": {"recipe": "./own.yaml"}, "third": []}
    found = message(planned, arms=arms, metrics=metrics("loss/mlm"))
    assert "fast: is the same model as 'slow': recipe=./own.yaml has the same content" in found
    assert "third: is the same model as 'slow': their settings are equal" in found


def test_a_width_that_parts_take_from_size_makes_another_model(planned: Planned) -> None:
    arms: dict[str, Any] = {"slow": [], "fast": ["size.width=64"]}
    assert counts(planned(arms=arms, metrics=metrics("loss/mlm")))[1] == 4
