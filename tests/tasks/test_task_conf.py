"""Every conf/task/*.yaml composes, builds, states its settings, and reads the real files where
they are at hand.
"""

import dataclasses
from pathlib import Path

import pytest

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.config.recipes import conf_dir
from plmctl.core.locate import parameters
from plmctl.tasks.choices import Choice
from plmctl.tasks.classification import Classification
from plmctl.tasks.generation import Generation
from plmctl.tasks.regression import Regression
from plmctl.tasks.squad import Squad
from plmctl.tasks.tagging import Tagging
from plmctl.tasks.task import Task

EVAL_ONLY = (
    "lm",
    "kg_bert",
    "link_prediction",
    "held_out",
    "context_length",
    "word_similarity",
    "word_analogies",
    "sts",
    "retrieval",
    "reranking",
    "wnlampro",
    "fact_completion",
    "minimal_pairs",
    "surprisal",
    "in_context",
    "in_context_choice",
)
NAMES = sorted(
    file.stem for file in (conf_dir() / "task").glob("*.yaml") if file.stem not in EVAL_ONLY
)
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def _task(name, path="x", *more):
    cfg = config.compose(
        "finetune", None, [f"task={name}", f"task.path={path}", "checkpoint=null", *more]
    )
    return cfg, build(cfg.task, path="task")


def test_none_is_missing():
    assert set(NAMES) >= {
        "choice",
        "classification",
        "cola",
        "conll2003",
        "dialogue",
        "mnli",
        "mrpc",
        "pair_classification",
        "qnli",
        "qqp",
        "regression",
        "rte",
        "seq2seq",
        "squad",
        "squad_v2",
        "sst2",
        "stsb",
        "summarization",
        "swag",
        "tagging",
        "translation",
        "wnli",
    }


BERT = (2e-5, 5e-5)
# SBERT's epochs; those of STS are four
CLUE = {"c3": 8, "cluewsc2020": 50, "cmnli": 2, "drcd": 2}  # epochs of its baselines
SENTENCES = {"sentence_classes": 1, "sentence_triplets": 1, "sentence_scores": 4}
SENTENCES |= {"sentence_translations": 5}
WRITING = ("comet", "dialogue", "question_generation", "seq2seq", "summarization", "translation")
WRITING += ("abstractive_summarization", "tree_writing")
# they predict tokens: the head is the checkpoint's own
WITHOUT_HEADS = (*WRITING, "cloze", "sparse_encoder")


@pytest.mark.parametrize("name", NAMES)
def test_composes_and_builds(name):
    cfg, task = _task(name)
    assert task.name == name
    assert (task.facts.head in cfg.heads) != (name in WITHOUT_HEADS)
    long = task.max_length > 1000  # Longformer's settings, in test_long_documents
    ranks = name == "coreference"
    usual = (10,) if name in WRITING else (4, 5, 15) if long else (20,) if ranks else (2, 3, 5, 6)
    stated = SENTENCES | CLUE
    assert cfg.train.epochs in ((stated[name],) if name in stated else usual)
    written = (3e-5, 6.25e-5, 1e-3)
    low = ranks or name in ("cloze", "csl")  # of their papers
    rates = written if name in WRITING else (3e-5,) if long else (1e-5,) if low else BERT
    rates = (2e-5, 3e-5) if name in CLUE else rates
    assert cfg.optim.lr in rates
    # these have a number of steps, 200 or 1000
    share = 0.0 if name in ("wikihop", "triviaqa", "hotpotqa") else 0.1
    assert cfg.schedule.warmup_share == (0.2 if name == "extractive_summarization" else share)
    lines = (conf_dir() / "task" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    assert lines[1].startswith("# ")


@pytest.mark.sampled(3)
@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data sets are not here")
@pytest.mark.parametrize(
    ("name", "path", "train", "dev"),
    [
        ("cola", "glue", 7700, 1043),
        ("sst2", "glue/SST-2", 30000, 872),
        ("mrpc", "glue", 3668, 408),
        ("stsb", "glue", 5749, 1500),
        ("rte", "glue", 2490, 277),
        ("wnli", "glue", 635, 71),
        ("qnli", "glue", 3471, 1323),
        ("qqp", "glue/QQP", 11395, 2000),
        ("conll2003", "ner/conll2003", 14041, 3250),
        ("squad", "squad/v1.1", 2803, 458),
        ("squad_v2", "squad/v2.0", 4015, 1121),
        ("tagging", "ner/wnut17", 3394, 1009),
        ("movie_reviews", "long_documents/movie_reviews", 1600, 200),
        ("tagging", "chinese/resume_ner", 3821, 463),
        ("fewrel", "relation/fewrel/relations16.json.gz", 8640, 960),
        ("semeval2010_task8", "relation/semeval2010_task8/by_relation.json.gz", 6764, 752),
        ("fewrel_few_shot", "relation/fewrel/relations16.json.gz", 2000, 1000),  # episodes
    ],
)
def test_reads_the_distributed_files(name, path, train, dev):
    _, task = _task(name, SHARED / path)
    examples = task.read("train")
    assert (len(examples), len(task.read("dev"))) == (train, dev)
    task.fit_labels(examples)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data sets are not here")
def test_reads_other_peoples_tables():
    sick = f"[{SHARED}/nli_sick/SICK_train.txt,{SHARED}/nli_sick/SICK_trial.txt]"
    names = ["text=sentence_A", "text2=sentence_B", "label=entailment_judgment"]
    _, task = _task("pair_classification", sick, *[f"task.columns.{name}" for name in names])
    task.fit_labels(task.read("train"))
    assert task.names == ["CONTRADICTION", "ENTAILMENT", "NEUTRAL"]
    columns = ["task.columns.tokens=text_a", "task.columns.tags=label", "task.reader.layout=table"]
    _, task = _task("tagging", SHARED / "chinese/msra_ner", *columns)
    assert len(task.read("dev")) == 1159
    _, task = _task(
        "classification", SHARED / "chinese/fewclue/tnews", "task.columns.text=sentence"
    )
    assert task.read("train")[0].fields["text"]
    names = ["text=0", "choices=[1,2,3,4]", "label=5"]
    arc = [
        SHARED / f"multiple_choice/arc/arc_easy_{split}" for split in ("train.csv.gz", "dev.csv")
    ]
    words = [
        *(f"task.columns.{name}" for name in names),
        "task.first_label=1",
        "task.reader.lenient=true",
    ]
    _, task = _task("choice", f"[{arc[0]},{arc[1]}]", *words)
    task.fit_labels(task.read("dev"))
    # some rows lack their choices
    assert len(task.read("dev")) + sum(task.splits.reader.skipped.values()) == 570
    codah = [
        SHARED / f"multiple_choice/codah/{split}_swag_layout.csv" for split in ("train", "dev")
    ]
    _, task = _task("swag", f"[{codah[0]},{codah[1]}]")
    task.fit_labels(task.read("train"))
    assert len(task.read("train")) == 1665
    _, task = _task("classification", SHARED / "chinese/chnsenticorp", "task.columns.text=text_a")
    assert len(task.read("dev")) == 1200


@pytest.mark.parametrize("part", [Choice, Classification, Generation, Regression, Squad, Tagging])
def test_a_task_takes_its_settings_by_name(part: type[Task]) -> None:
    """What a config may say of a task are the fields of its `Settings`."""
    assert parameters(part).keys() == {each.name for each in dataclasses.fields(part.Settings)}
    with pytest.raises(TypeError, match="unexpected keyword argument 'lenght'"):
        part(lenght=3)


def test_a_subclass_may_take_its_settings_one_by_one() -> None:
    class Own(Choice):
        def __init__(self, *, rows: int) -> None: ...

    class Same(Choice): ...

    assert parameters(Own).keys() == {"rows"}
    assert parameters(Same) == parameters(Choice)
    assert parameters(Choice)["first_label"].annotation is int
