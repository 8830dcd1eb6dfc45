"""`plmctl recipes`: the list, a recipe in detail, its copy, and its chain, stopped, changed, and
without its data.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.chain.plan import plan
from plmctl.chain.stages import plan_stages, sort_words
from plmctl.cli.app import make_app
from plmctl.commands.eval import Evaluate
from plmctl.config.build import plain
from plmctl.config.compose import compose
from plmctl.config.headers import header, source_of
from plmctl.config.recipes import conf_dir, find_recipe, recipe_names, recipes_dir
from plmctl.config.spec import Provenance
from plmctl.config.walks import leaves
from plmctl.jobs.job import locate_runs, resolve
from plmctl.runs import pretraining
from plmctl.runs.estimate import estimate
from plmctl.storage.job_events import JobEvents
from plmctl.tasks.readers.builtin import write_builtin_task

RECIPES = recipe_names()
LOGS = Path(__file__).parents[2] / "docs/results"
RESULTS = "\n".join(page.read_text(encoding="utf-8") for page in LOGS.glob("*.md"))
NEEDS_TEXT = {"tlm", "transformer", "bart_translation", "mass_translation", "lite_transformer"}
NEEDS_TEXT |= {"evolved_transformer", "universal_transformer", "unicoder", "kepler", "xlm"}
NEEDS_TEXT |= {"cove", "reformer_translation"}
SMALL = [
    "size.width=32",
    "size.inner_width=64",
    "size.num_heads=2",
    "train.steps=2",
    "train.batch_size=8",
    "train.save_every=1",
    "finetune.train.steps=1",
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plmctl(*words: str) -> Any:
    return CliRunner().invoke(make_app(), ["recipes", *words])


def text_of(recipe: str, files: tuple[Path, Path]) -> list[str]:
    """The settings that give a recipe the text which it cannot do without."""
    keys = [
        word.partition("=")[0]
        for word in header(find_recipe(recipe)).command()
        if word.startswith("data.") and "path=" in word
    ]
    if len(keys) < 2:
        return []
    return [f"{key}={file}" for key, file in zip(keys, itertools.cycle(files), strict=False)]


# ls


def test_ls_is_a_table_of_every_recipe_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['plmctl', 'recipes', 'ls', '--json']\nfrom plmctl.cli.app import"
        " main\n"
    )
    code += "try: main()\nfinally: print('torch' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "False"
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert list(rows) == RECIPES
    assert rows["bert"]["paper"] == "Devlin et al., 2019"
    assert rows["bert"]["system"] == "BERT (Devlin et al., 2019, arXiv:1810.04805)"
    assert rows["bert"]["scale"] == "tiny, 2,000 steps, 32 x 128"
    assert rows["mass_translation"]["paper"] == "Song et al., 2019"
    assert rows["tlm"]["reached"] == "not measured"
    # of mass a line of a table speaks
    measured = set(re.findall(r"^plmctl pretrain (\w+)", RESULTS, re.MULTILINE)) | {"mass"}
    assert {name for name, row in rows.items() if row["reached"] != "not measured"} >= measured


def test_ls_of_studies() -> None:
    rows = {row["name"]: row for row in json.loads(plmctl("ls", "--studies", "--json").stdout)}
    assert set(rows) == {file.stem for file in (recipes_dir() / "studies").glob("*.yaml")}
    assert rows["bert_sizes"] | {"title": ""} == {
        "name": "bert_sizes",
        "title": "",
        "arms": "6",
        "seeds": "3",
        "budget": rows["bert_sizes"]["budget"],
        "tasks": "docstrings, sst2, mnli, mrpc",
        "results": "not in this form",
    }


@pytest.mark.sampled(7)
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_header_states_cost_and_data_as_they_are(recipe: str) -> None:
    found = header(find_recipe(recipe))
    report = estimate(compose("pretrain", recipe))
    parameters, flops = (
        sum(report["parameters"].values()) / 1e6,
        float(report["run"]["training FLOPs"]),
    )
    expected = f"{parameters:.1f} M parameters, {flops:.1e} FLOPs".replace("e+", "e")
    assert found.text("Cost").partition(" (")[0] == expected, f"# Cost:      {expected}"
    assert "https://" in found.text("Data")


@pytest.mark.parametrize(
    "recipe", [name for name in RECIPES if header(find_recipe(name)).text("Reached")]
)
def test_figures_that_were_reached_stand_in_the_results(recipe: str) -> None:
    told = header(find_recipe(recipe)).text("Reached")
    assert told.endswith("(RESULTS.md)")
    assert re.search(r"\d+\.\d+|\d+%", told)
    assert all(number in RESULTS for number in re.findall(r"\d+\.\d+|\d+%", told))


@pytest.mark.parametrize(
    "task",
    [
        "cola",
        "sst2",
        "mrpc",
        "stsb",
        "qqp",
        "mnli",
        "qnli",
        "rte",
        "wnli",
        "conll2003",
        "squad",
        "squad_v2",
        "cmrc2018",
        "coqa",
        "quac",
        "retro_reader",
        "sketchy_reader",
        "xquad",
        "triviaqa",
        "wikihop",
        "hotpotqa",
        "swag",
        "translation",
        "summarization",
    ],
)
def test_published_tasks_say_where_their_files_are(task: str) -> None:
    assert "https://" in source_of("task", task)
    assert (conf_dir() / f"task/{task}.yaml").is_file()


# show and cp


def test_show_has_header_differences_and_a_chain_that_can_be_typed() -> None:
    record = json.loads(plmctl("show", "bert", "--json").stdout)
    assert record["differences"]["optim.lr"] == ["0.0005", "0.0001"]
    assert record["differences"]["format"] == ["sentence_pair", ""]
    assert record["data"].startswith("English Wikipedia, https://dumps.wikimedia.org")
    verbs = [shlex.split(line)[:2] for line in record["chain"]]
    assert verbs == [["plmctl", verb] for verb in ("tokenize", "pretrain", "finetune", "eval")]
    shown = plmctl("show", "bert").stdout
    assert "# Published: plmctl pretrain bert" in shown
    assert record["chain"][1] in shown


def test_show_has_the_header_of_a_recipe_whose_text_is_not_given() -> None:
    done = plmctl("show", "transformer")
    assert done.exit_code == 0
    assert "# Published: plmctl pretrain transformer" in done.stdout
    assert "fix: plmctl recipes run transformer data.path=train.en" in done.stderr
    assert plmctl("show", "transformer", "train.steps=1").exit_code == 3


def test_cp_copies_once_and_says_how_to_go_on(here: Path) -> None:
    done = plmctl("cp", "gpt2")
    assert done.exit_code == 0
    assert "plmctl pretrain ./gpt2.yaml" in done.stdout
    first, _, rest = (here / "gpt2.yaml").read_bytes().partition(b"\n")
    assert first.startswith(b"# yaml-language-server: $schema=file://")  # for editors
    assert rest == (recipes_dir() / "gpt2.yaml").read_bytes()
    (here / "gpt2.yaml").write_text("mine: 1", encoding="utf-8")
    again = plmctl("cp", "gpt2")
    assert (again.exit_code, (here / "gpt2.yaml").read_text(encoding="utf-8")) == (2, "mine: 1")
    assert "gpt2.yaml: is there already" in again.stderr
    assert "fix: plmctl recipes cp gpt2 --out gpt2-2.yaml  # another name" in again.stderr
    assert plmctl("cp", "gpt2", "other.yaml").exit_code == 0
    assert "./other.yaml" in plmctl("show", "./other.yaml").stdout


def test_cp_copies_a_study(here: Path) -> None:
    done = plmctl("cp", "prenorm_gradients")
    assert "plmctl ablate ./prenorm_gradients.yaml --dry-run" in done.stdout
    first, _, rest = (here / "prenorm_gradients.yaml").read_bytes().partition(b"\n")
    assert b"ablate.json" in first
    assert rest == (recipes_dir() / "studies/prenorm_gradients.yaml").read_bytes()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "robert"], "there is no recipe 'robert' (did you mean 'roberta'?)"),
        (["run", "bert_sizes"], "plmctl ablate bert_sizes --dry-run"),
        (["cp", "bert", "nowhere/mine.yaml"], "mkdir -p nowhere"),
        (["cp", "bert", "mine"], "fix: mine.yaml"),
        (["run", "bert", "gpt"], "only one recipe may be named"),
        (
            ["run", "bert", "tasks.sst=builtin"],
            "plmctl: task='sst': there is no such task (did you mean 'sst2'?)",
        ),
        (["run", "bert", "tran.steps=3"], "did you mean 'train.steps'?"),
        (["run", "bert", "finetune.size=mini"], "size"),
    ],
)
def test_mistakes_are_named_before_anything_is_made(
    words: list[str], told: str, here: Path
) -> None:
    done = plmctl(*words)
    assert done.exit_code == 2
    assert told in done.stderr
    assert not list(here.iterdir())


def test_a_stream_is_not_tokenized_before(here: Path, tokens_of: Callable[..., Path]) -> None:
    (here / "rows.jsonl").write_text('{"text": "the cat sees a bird."}\n' * 50)
    (here / "valid.txt").write_text("the cat sees a bird.\n" * 50)
    words = ["data.path=rows.jsonl", "data.valid_path=valid.txt", "data.streaming=true"]
    words += [f"tokenizer.path={tokens_of('wordpiece')}/tokenizer", "train.steps=2"]
    lines = plmctl("run", "roberta", *words, "tasks=none", "--dry-run").stdout.splitlines()
    assert [shlex.split(line)[1] for line in lines if line.startswith("plmctl")] == [
        "pretrain",
        "eval",
    ]
    assert "data.streaming=true" in lines[0]


def test_own_recipes_have_names_too(here: Path) -> None:
    (here / "conf/recipes").mkdir(parents=True)
    own = (
        (recipes_dir() / "gpt.yaml")
        .read_text(encoding="utf-8")
        .replace("plmctl pretrain gpt", "plmctl pretrain mine")
    )
    (here / "conf/recipes/mine.yaml").write_text(own, encoding="utf-8")
    rows = json.loads(plmctl("ls", "--json", "--config-dir", "conf").stdout)
    assert rows[0]["name"] == "mine"
    line = plmctl("run", "mine", "--dry-run", "--config-dir", "conf").stdout.splitlines()[1]
    assert line.startswith("plmctl pretrain mine ")
    assert line.endswith("--config-dir conf")


# the stages that a header states


def test_file_names_in_a_header_stand_for_those_of_the_user(here: Path) -> None:
    file = here / "two.yaml"
    file.write_text(
        "# Two (A, 2020): from one.\n# Before:    plmctl pretrain bart data.path=x.en"
        " run.dir=runs/bart\n# Launch:    plmctl pretrain two init=runs/bart data.path=x.ro"
        " data.target_path=x.en\n",
        encoding="utf-8",
    )
    found = header(file)
    words = (
        "data.path=my.ro",
        "data.target_path=my.en",
        "size=mini",
        "train.steps=5",
        "bart.train.steps=9",
    )
    first, own = plan_stages("two", found, sort_words(words, ["bart"]))
    # what decides the model belongs where it begins
    assert first.words == ("data.path=my.en", "size=mini", "train.steps=9")
    assert own.words == (
        "init=runs/bart",
        "data.path=my.ro",
        "data.target_path=my.en",
        "train.steps=5",
    )
    assert own.uses == {"bart"}
    (alone,) = plan_stages("two", found, sort_words((*words, "init=elsewhere"), ["bart"]))
    assert "size=mini" in alone.words
    assert "init=elsewhere" in alone.words


@pytest.mark.parametrize(("recipe", "begins"), [("minilm", False), ("distilbert", True)])
def test_the_size_is_the_student_s_own_where_it_does_not_begin_as_its_teacher(
    recipe: str, begins: bool
) -> None:
    words = ("size=small", "tokenizer.vocab_size=900", "data.path=my.txt")
    teacher, own = plan_stages(recipe, header(find_recipe(recipe)), sort_words(words, ["bert"]))
    assert ("size=small" in teacher.words, "size=small" in own.words) == (begins, not begins)
    assert "tokenizer.vocab_size=900" in teacher.words  # the student takes its teacher's
    assert "tokenizer.vocab_size=900" not in own.words
    assert own.uses == {"bert"}


def test_a_stage_that_reads_the_same_text_has_the_user_s_other_files_too() -> None:
    words = ("data.path=my.txt", "data.lines=sentence", "tokenizer.path=my-small")
    found = header(find_recipe("small_vocabulary"))
    teacher, mixed, own = plan_stages("small_vocabulary", found, sort_words(words, []))
    assert teacher.words == words[:2]
    small = "noise.mixed_vocabulary.path=my-small"
    assert mixed.words == ("init=runs/teacher", small, *words[:2])
    assert own.words == ("first_vectors.path=runs/mixed", *words)


def test_a_student_of_layers_alone_has_no_objective_to_be_measured_by() -> None:
    chain = plan("minilm", header(find_recipe("minilm")), [], {}, Provenance("recipes"))
    assert [step.label for step in chain.jobs.values()] == ["tokenize", "bert", "pretrain"]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_chain_composes(recipe: str, translation: tuple[Path, Path]) -> None:
    """Each step is a command line of its own that composes to the config which the chain runs."""
    chain = plan(
        recipe,
        header(find_recipe(recipe)),
        text_of(recipe, translation),
        None,
        Provenance("recipes"),
    )
    assert bool(text_of(recipe, translation)) == (recipe in NEEDS_TEXT)
    assert [step.verb for step in chain.jobs.values()][-1] == "eval"
    assert "pretrain" in {step.label for step in chain.jobs.values()}
    known = set[str]()
    for step in chain.jobs.values():
        used = set(re.findall(r"job:([\w-]+)", json.dumps(step.config)))
        assert used <= known, "a step reads only what is there"
        known.add(step.name)
    line = shlex.split(list(chain.jobs.values())[-1].line(locate_runs(chain.jobs, Path("out"))))
    assert compose("eval", None, line[2:]).checkpoint.startswith("out/")


def test_a_line_that_is_typed_makes_the_config_that_the_chain_runs(small_text: Path) -> None:
    words = [
        f"data.path={small_text}",
        "data.lines=paragraph",
        "size=mini",
        "wiki.seed=3",
        "docstrings.optim.lr=1e-3",
    ]
    chain = plan("simcse", header(find_recipe("simcse")), words, None, Provenance("recipes"))
    folders = locate_runs(chain.jobs, Path("out"))
    for step in chain.jobs.values():
        _, verb, *typed = shlex.split(step.line(folders))
        recipe = typed.pop(0) if verb == "pretrain" else None
        made = dict(leaves(plain(compose(verb, recipe, typed))))
        ran = dict(leaves(resolve(step.config, folders)))
        assert {key for key in made | ran if made.get(key) != ran.get(key)} <= {"out", "run.dir"}
    _, first, own, *_ = chain.jobs.values()
    assert first.config["seed"] == 3
    assert first.config["size"]["num_layers"] == 4
    assert own.config["seed"] == 0


# run


@pytest.fixture
def chain_words(tokens_of: Callable[..., Path]) -> list[str]:
    tokens = tokens_of("wordpiece")
    return [
        "run",
        "simcse",
        f"data.path={tokens}",
        *SMALL,
        "wiki.train.steps=2",
        "wiki.train.save_every=1",
        "out=out",
    ]


@pytest.fixture
def few_docstrings(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every eighth line of `task.path=builtin`: baselines on all of it take seconds."""
    whole, cache = write_builtin_task(), tmp_path_factory.mktemp("few")
    (cache / whole.name).mkdir()
    for file in whole.iterdir():
        first, *lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        (cache / whole.name / file.name).write_text("".join([first, *lines[::8]]), encoding="utf-8")
    monkeypatch.setenv("PLMCTL_CACHE", str(cache))


class Interrupted:
    """A command that is stopped once, after it has worked: what it saved is there, but it has
    not ended well.
    """

    def __init__(self, real: Callable[..., Any], times: int = 1) -> None:
        self.real, self.times, self.calls = real, times, 0

    def __call__(self, spec: Any) -> Any:
        self.calls += 1
        if self.calls <= self.times:
            raise KeyboardInterrupt
        return self.real(spec)


def table(stdout: str) -> list[dict[str, Any]]:
    return json.loads(stdout.splitlines()[-1])["steps"]


@pytest.mark.usefixtures("few_docstrings")
def test_a_chain_goes_on_where_it_was_stopped(
    chain_words: list[str], monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    stop = Interrupted(Evaluate.perform)
    monkeypatch.setattr(Evaluate, "perform", lambda settings: stop(settings))
    first = plmctl(*chain_words, "--json")
    assert first.exit_code == 130
    assert f"To go on:\n  plmctl recipes {shlex.join(chain_words)}" in first.stderr
    assert [step["step"] for step in table(first.stdout)] == ["wiki", "pretrain", "docstrings"]
    (tuned,) = (here / "out").glob("docstrings-*")
    written = (tuned / "run/metrics.jsonl").read_bytes()
    # as if it had been killed just before it said so
    JobEvents(here / "out").write("interrupted", tuned.name)
    (pretrained,) = (here / "out").glob("pretrain-*")
    ran: list[str] = []
    monkeypatch.setattr(pretraining, "pretrain", lambda spec: ran.append("pretrain"))
    second = plmctl(*chain_words, "--json")
    assert second.exit_code == 0, second.stderr
    assert not ran, "what is finished is passed over"
    assert second.stderr.count("finished before") == 2
    assert "docstrings: goes on" in second.stderr
    assert (tuned / "run/metrics.jsonl").read_bytes() == written, (
        "it was resumed, and there was nothing left to do"
    )
    steps = table(second.stdout)
    assert [step["step"] for step in steps] == ["wiki", "pretrain", "docstrings", "eval-docstrings"]
    assert steps[2]["figure"] == steps[3]["figure"]
    assert steps[2]["figure"].startswith("accuracy 0.")
    assert all(step["seconds"] > 0 for step in steps)
    page = (here / "out/chain.md").read_text(encoding="utf-8")
    assert all(step["command"] in page and step["figure"] in page for step in steps)
    assert str(pretrained.relative_to(here)) in page

    # another setting: that step anew, and what needs it
    third = plmctl(*chain_words, "finetune.optim.lr=1e-3", "--json")
    assert third.exit_code == 0, third.stderr
    assert not ran
    assert "optim.lr: 0.0005 -> 0.001" in third.stderr
    assert len(list((here / "out").glob("docstrings-*"))) == 2, "the other one stays"


@pytest.mark.slow  # test_a_chain_goes_on_where_it_was_stopped stays
def test_a_cut_off_pretraining_is_resumed(tokens_of: Callable[..., Path], here: Path) -> None:
    """Killed after its first checkpoint: the second start begins there, not at update 0."""
    tokens = tokens_of("byte_bpe", "tokenizer.specials=gpt2")
    words = ["run", "gpt", f"data.path={tokens}", *SMALL, "tasks=none", "out=out", "--json"]
    assert plmctl(*words).exit_code == 0
    (place,) = (here / "out").glob("pretrain-*")
    whole = [
        json.loads(line)
        for line in (place / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    JobEvents(here / "out").write("interrupted", place.name)
    for folder in (place / "run/checkpoints").glob("step-2"):
        folder.rename(here / "gone")
    done = plmctl(*words)
    assert done.exit_code == 0, done.stderr
    assert "resumed from" in done.stderr
    again = [
        json.loads(line)
        for line in (place / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [row["loss"] for row in again if "loss" in row] == [
        row["loss"] for row in whole if "loss" in row
    ]
    assert [step["step"] for step in table(done.stdout)] == ["pretrain", "eval-pretrain"]


def test_a_failing_step_ends_the_chain_with_its_code(
    chain_words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from plmctl.core.errors import DataError

    def fail(spec: Any) -> int:
        raise DataError("broken", file="here.txt")

    monkeypatch.setattr(pretraining, "pretrain", fail)
    done = plmctl(*chain_words)
    assert done.exit_code == 3
    assert "plmctl: here.txt: broken" in done.stderr
    assert "wiki failed; what is finished stays so" in done.stderr


def test_raw_text_is_tokenized_first_and_once(small_text: Path) -> None:
    words = [
        "run",
        "simcse",
        f"data.path={small_text}",
        "data.lines=paragraph",
        "tokenizer.vocab_size=700",
    ]
    lines = [shlex.split(line) for line in plmctl(*words, "--dry-run").stdout.splitlines()]
    assert [line[1] for line in lines] == ["tokenize", "pretrain", "pretrain", "finetune", "eval"]
    assert {"tokenizer=wordpiece", "tokenizer.vocab_size=700", "data.lines=paragraph"} <= set(
        lines[0]
    )
    tokens = next(word for word in lines[0] if word.startswith("out=")).removeprefix("out=")
    assert all(f"data.path={tokens}" in line for line in lines[1:3])


# data that are not there


def test_a_recipe_without_its_text_says_what_to_download(here: Path) -> None:
    done = plmctl("run", "transformer")
    assert done.exit_code == 3
    assert "https://www.statmt.org/wmt14/translation-task.html" in done.stderr
    assert (
        "fix: plmctl recipes run transformer data.path=train.en data.target_path=train.de"
        in done.stderr
    )
    assert not list(here.iterdir())


def test_all_that_is_absent_is_named_at_once(here: Path) -> None:
    done = plmctl("run", "bert", "data.path=wiki.txt", "tasks.sst2=glue/SST-2", "tasks.squad=squad")
    assert done.exit_code == 3
    for told in (
        "wiki.txt",
        "dumps.wikimedia.org",
        "SST-2.zip",
        "rajpurkar.github.io/SQuAD-explorer",
    ):
        assert told in done.stderr
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["eval-docstrings.input=nothere"],
        ["eval-docstrings.task=classification", "eval-docstrings.task.path=nothere"],
        ["tasks=none", "eval-pretrain.data.path=nothere"],
    ],
)
def test_what_an_evaluation_reads_is_looked_for_before_work(here: Path, words: list[str]) -> None:
    done = plmctl("run", "bert", *words, "--dry-run")
    assert done.exit_code == 3
    assert "nothere: no such file" in done.stderr


def test_finetune_says_where_an_absent_task_is() -> None:
    done = CliRunner().invoke(
        make_app(),
        ["finetune", "task=sst2", "task.path=glue/SST-2", "checkpoint=null", "size=tiny"],
    )
    assert done.exit_code == 3
    assert "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip" in done.stderr
