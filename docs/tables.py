"""Write the tables of parts, fields, recipes, studies, commands, settings and families into these
pages: `python docs/tables.py`, or `make docs`.

A table stands between `<!-- NAME -->`, such as `<!-- parts: noise -->` or `<!-- recipes -->`, and
`<!-- end -->`. A part's row is the first comment of its YAML file; a field's row is what the part
that introduces it says; a recipe's row is its first comment and the parts that it chooses; a
study's row is its question, its title, the papers that its header names, what it trains and
what was measured; a command's row is the first sentence of its help; a setting's row is what
`plmctl help` says of it; a family of published checkpoints states its systems, classes,
recipes and names on the hub; a class of the reference has the first sentence of its docstring.

Between `<!-- file: PATH -->` and `<!-- end -->` stands the text of a file of the repository.

docs/llms.txt, in the form of llmstxt.org, lists the pages of mkdocs.yml with their first sentences.
`plmctl docs` reads it.
"""

import functools
import importlib
import inspect
import re
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
import yaml

from plmctl.chain.listing import list_parts, name_paper, name_system
from plmctl.config.build import build
from plmctl.config.command import Command, Tool, all_commands, list_commands, load_command
from plmctl.config.glossary import known_fields
from plmctl.config.headers import Header, header
from plmctl.config.launcher import Launching
from plmctl.config.published import name_other_block
from plmctl.config.recipes import (
    conf_dir,
    find_recipe,
    load,
    part_files,
    recipe_names,
    recipes_dir,
    studies,
)
from plmctl.config.schema import SAVED
from plmctl.config.settings import Setting, list_plumbing
from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.interop.family import Family
from plmctl.interop.hf import FAMILIES
from plmctl.interop.listing import ListedFamily, list_families
from plmctl.study.measured import count, judge, read
from plmctl.text.vocab import Vocab

DOCS = Path(__file__).parent
RESULTS = recipes_dir() / "RESULTS.md"
LOGS = DOCS / "results"
INDEX = DOCS / "llms.txt"
PAGES = (*sorted(DOCS.rglob("*.md")), RESULTS)
TABLE = re.compile(
    r"(?<=<!-- )((?:parts|settings|classes): \w+"
    r"|fields|recipes|studies|results|reached|commands|families|published|noised)"
    r" -->\n(.*?)(?=<!-- end -->)",
    re.DOTALL,
)
FILE = re.compile(r"(?<=<!-- )file: ([\w./]+) -->\n(.*?)(?=<!-- end -->)", re.DOTALL)
CLASS = re.compile(r"^::: ([\w.]+)\.(\w+)$", re.MULTILINE)
CLASSES = {  # the tables of the reference; each class has a page of its own
    "python": "TrainedModel RunFolder StudyRecord RowList",
    "bases": "Noise Format Pattern Position Kernel FirstVectors Cell CellFacts Head ClassHead"
    " Objective Facts Output Term Signal Probe Tracker Measure Command About",
    "tasks": "Task TaskFacts ModelNeeds Reader Example RowLayout RowSettings Answer Scores",
    "values": "Seq Rows Batch Targets Field Draws Vocab Offsets Streams Env Loaded Opened"
    " ScoreTable",
    "errors": "PlmctlError UsageError ConfigError DataError",
}
SHARED = "several"  # `settings: several`: settings of more than one command
AUTHORS = re.compile(r"[A-Z]\w+(?: and [A-Z]\w+| et al\.)?, \d{4}")
SENTENCE = "the old man counts the boats in the harbour every morning before he drinks his tea"
NOISED = (  # noises that need nothing but tokens
    *("token_mask", "ngram_mask", "span_mask", "unilm_mask", "token_replace", "token_shuffle"),
    *("factorization_order", "span_sentinel", "token_sentinel", "sequence_span", "text_infill"),
    *("token_delete", "document_rotate", "word_shuffle", "word_drop", "word_blank"),
)
CHOSEN = ("model", "format", "noise", "objective")  # slots of a recipe
HEADS = {
    "fields": ("field", "shape", "type", "meaning"),
    "families": ("systems", "classes of transformers"),
    "published": ("`model_type`", "systems", "recipes", "names on the hub (parameters)"),
    "studies": ("study", "question", "title", "papers", "trains", "measured"),
    "results": ("study", "log", "expectation", "effect, 95% interval", "verdicts", "seeds", "date"),
    "reached": ("recipe", "reached"),
    "commands": ("command", "effect"),
    "noised": ("`noise=`", "input of the model", "targets"),
    "recipes": ("system", "recipe", "effect", *CHOSEN),
}


@functools.cache
def rows(name: str) -> list[str]:
    """The rows of the table with this mark, in the order of names."""
    if name == "recipes":
        return [recipe_row(each) for each in recipe_names()]
    if name == "studies":
        return [study_row(name) for name in studies()]
    if name == "results":
        return [result_row(name) for name in read()]
    if name == "reached":
        found = {each: header(find_recipe(each)).text("Reached") for each in recipe_names()}
        return [row([f"`{each}`", text]) for each, text in found.items() if text]
    if name == "commands":
        return [command_row(load_command(each.module)) for each in list_commands().values()]
    if name.startswith("settings: "):
        return setting_rows(name.removeprefix("settings: "))
    if name.startswith("classes: "):
        return [class_row(each) for each in CLASSES[name.removeprefix("classes: ")].split()]
    if name == "families":
        return [family_row(family) for family in sorted(FAMILIES, key=lambda each: each.systems)]
    if name == "published":
        return [published_row(family) for family in list_families()]
    if name == "noised":
        return [noised_row(noise) for noise in NOISED]
    if name == "fields":
        return [
            row([f"`{field}`", known.shape, known.dtype, known.meaning])
            for field, (known, _) in known_fields().items()
        ]
    parts = part_files(name.removeprefix("parts: "))
    return [row([f"`{part}`", describe_part(header(file))]) for part, file in parts.items()]


def describe_part(found: Header) -> str:
    """The line of a part, and where to get the data that it reads."""
    data = found.text("Data")
    text = found.about + (f"; data: {data}" if data else "")
    return text.replace("] [", "] \\[")  # [CLS] [SEP] would be read as a link


def class_row(name: str) -> str:
    """One class of the reference: its page, its module, the first sentence of its docstring."""
    page = f"{name.lower()}.md"
    found = CLASS.search((DOCS / "reference" / page).read_text(encoding="utf-8"))
    assert found is not None
    about = inspect.getdoc(getattr(importlib.import_module(found[1]), name)) or ""
    sentence = re.split(r"(?<=\.)\s", " ".join(about.partition("\n\n")[0].split()))[0]
    return row([f"[{name}]({page})", f"`{found[1]}`", sentence])


def family_row(family: Family) -> str:
    """One family of published checkpoints: its systems, and the classes that are read and
    written.
    """
    names = dict.fromkeys(each.name for each in family.architectures)
    return row([", ".join(family.systems), ", ".join(f"`{name}`" for name in names)])


def published_row(family: ListedFamily) -> str:
    """One family that can be opened: its systems, recipes and names on the hub."""
    recipes = ", ".join(f"`{name}`" for name in family.recipes)
    return row([f"`{family.model_type}`", ", ".join(family.systems), recipes, family.spell_names()])


def recipe_row(name: str) -> str:
    """One recipe: its system and paper, its file, what it does, the parts that it chooses."""
    file = find_recipe(name)
    found = header(file)
    title, authors = name_system(found), name_paper(found)
    about = found.about.removeprefix(title).removeprefix(": ")
    chosen = list_parts(load(conf_dir() / "pretrain.yaml")) | list_parts(load(file))
    parts = [chosen[slot] if isinstance(chosen[slot], list) else [chosen[slot]] for slot in CHOSEN]
    return row(
        [
            title.partition(" (")[0] + (f" ({authors})" if authors else ""),
            f"`{name}`",
            about[:1].upper() + about[1:],
            *(", ".join(f"`{part}`" for part in each) or "none" for each in parts),
        ]
    )


def study_row(name: str) -> str:
    """One study: its question, its title and the papers that its header names. The last cells are
    the data of the small form, unless it is the published block, and its verdicts.
    """
    file = recipes_dir() / "studies" / f"{name}.yaml"
    found = header(file)
    question, mark, _ = found.about.partition("?")
    papers = dict.fromkeys(AUTHORS.findall(" ".join([found.about, found.text("Published")])))
    title = str(load(file)["title"])
    settings = load(file)
    own = isinstance(settings["published"], str)
    block = "no published experiment" if own else name_other_block(settings)
    verdicts = count(name, settings)
    return row([f"`{name}`", question + mark, title, "; ".join(papers), block, verdicts])


def result_row(name: str) -> str:
    """One study that was measured: its first expectation with the effect, and all verdicts."""
    settings, entry = load(recipes_dir() / "studies" / f"{name}.yaml"), read()[name][-1]
    judged, cells = judge(name, settings), ["", ""]
    if judged:
        first = judged[0]
        metric, arm, expected = (first[key] for key in ("metric", "arm", "expected"))
        cells = [f"{metric}: {arm} {expected} than {settings['baseline']}"]
        interval = f", {first['low']:+.3g} to {first['high']:+.3g}" if "low" in first else ""
        cells.append(f"{first['difference']:+.3g}{interval}")
    seeds = (judged[0] if judged else {}).get("n", len(settings["seeds"]))
    verdicts, log = count(name, settings), find_log(entry["where"])
    return row([f"`{name}`", log, *cells, verdicts, str(seeds), entry["date"]])


@functools.cache
def find_log(heading: str) -> str:
    """The page of docs/results that has this heading."""
    pages = sorted(LOGS.glob("*.md"))
    return next(
        each.stem for each in pages if f"\n## {heading}\n" in each.read_text(encoding="utf-8")
    )


def noised_row(name: str) -> str:
    """One sentence after a noise with its own settings: changed tokens are bold."""
    marks = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "X", "Y", "Z")
    words = SENTENCE.split()
    spellings = (*marks, *sorted(set(words)))
    special = np.arange(len(spellings)) < len(marks)
    roles = dict(pad=0, unk=1, cls=2, sep=3, mask=4, bos=None, eos=None, sentinels=(5, 6, 7))
    names = dict(spellings=spellings, texts=spellings)
    vocab = Vocab(size=len(spellings), special=special, word_start=~special, **roles, **names)
    ids = np.array([[2, *map(spellings.index, words), 3]], np.int32)  # [1, T]
    tracks = {"word_start": vocab.word_start[ids]}
    text = Seq(ids, np.array([ids.shape[1]]), tracks)
    node = load(part_files("noise")[name])
    noise = build(node, {"vocab": vocab}, path=f"noise.{name}")
    made = noise(Rows(key=np.array([3]), source="", seqs={"text": text}), Draws(0, 0))
    read, *written = (spell_tokens(seq, spellings) for seq in made.seqs.values())
    moved = len(read) == ids.shape[1]
    shown = [
        token if (moved and token == before) or (not moved and token in words) else f"**{token}**"
        for token, before in zip_longest(read, ["[CLS]", *words, "[SEP]"])
        if token is not None
    ]
    return row([f"`{name}`", " ".join(shown[1:-1]), predicted(made, written, spellings)])


def spell_tokens(seq: Seq, spellings: Sequence[str]) -> list[str]:
    """The tokens of the only row of a sequence."""
    return [spellings[token] for token in seq.ids[0, : int(seq.length[0])].tolist()]


def predicted(made: Rows, written: Sequence[Sequence[str]], spellings: Sequence[str]) -> str:
    """The text that a decoder writes, or the tokens and labels of an encoder."""
    if written:
        kept = [token for token in written[0] if token not in ("[CLS]", "[SEP]")]
        return "the whole text" if " ".join(kept) == SENTENCE else " ".join(kept)
    (target, labels), *_ = made.targets.items()
    field = known_fields()[f"targets.{target}"][0]
    asked = [label for label in np.asarray(labels)[0].tolist() if label != IGNORE]
    return (
        " ".join(spellings[label] for label in asked)
        if field.tokens
        else "for each token: " + field.meaning
    )


def command_row(kind: type[Command] | type[Tool]) -> str:
    """One command, with a link to the page of its name, or that with a heading of its name."""
    name = kind.about.name
    page = DOCS / "commands" / f"{name.partition(' ')[0]}.md"
    heading = re.compile(rf"^#+ .*\b{name}\b", re.MULTILINE)
    if not page.exists() or " " in name:
        others = sorted(page.parent.glob("*.md"))
        named = (each for each in others if heading.search(each.read_text(encoding="utf-8")))
        page = next(named, page)
    about = (kind.__doc__ or "").partition("\n\n")[0]
    return row([f"[plmctl {name}]({page.name})", " ".join(about.split())])


@functools.cache
def owners() -> dict[Setting, list[str]]:
    """{setting: the commands that have it}, without those of parts."""
    known: dict[Setting, list[str]] = {}
    for verb, kind in {**all_commands(), **SAVED, "launcher": Launching}.items():
        for setting in list_plumbing(kind):
            known.setdefault(setting, []).append(verb)
    return known


def setting_rows(verb: str) -> list[str]:
    """The settings of one command alone, or those of several commands."""
    return [
        row(
            [
                f"`{setting.path}`",
                f"`{setting.default}`" if setting.default else "must be given",
                setting.meaning.replace("<", "&lt;"),
                setting.kind if verb != SHARED else ", ".join(verbs),
            ]
        )
        for setting, verbs in owners().items()
        if verbs == [verb] or (verb == SHARED and len(verbs) > 1)
    ]


def row(cells: Sequence[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def head_of(name: str) -> Sequence[str]:
    """The first line of the table with this mark."""
    kind, _, of = name.partition(": ")
    if kind == "settings":
        return ("setting", "default", "meaning", "commands" if of == SHARED else "values")
    if kind == "classes":
        return ("class", "module", "meaning")
    return HEADS.get(name, (f"`{of}=`", "part"))


def fill(page: str) -> str:
    """`page` with new tables and files between its marks."""

    def table(found: re.Match[str]) -> str:
        name = found[1]
        head = head_of(name)
        return "\n".join([f"{name} -->", row(head), f"|{'---|' * len(head)}", *rows(name), ""])

    return FILE.sub(show_file, TABLE.sub(table, page))


def show_file(found: re.Match[str]) -> str:
    """The mark of a file, and the file as a block of code."""
    path = DOCS.parent / found[1]
    kind = {".py": "python", ".yaml": "yaml"}[path.suffix]
    return f"{found[0].splitlines()[0]}\n```{kind}\n{path.read_text(encoding='utf-8')}```\n"


def list_site() -> str:
    """The text of docs/llms.txt: a section for each tab of the site, a line for each page."""
    site = yaml.safe_load((DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8"))
    lines = [f"# {site['site_name']}", f"> {site['site_description']}"]
    for tab in site["nav"]:
        ((title, pages),) = tab.items()
        pages = [{title: pages}] if isinstance(pages, str) else pages
        named = [pair for page in pages for pair in page.items()]
        links = [f"- [{name}]({page}): {describe_page(DOCS / page)}" for name, page in named]
        lines += [f"## {title}", "\n".join(links)]
    return "\n\n".join(lines) + "\n"


def describe_page(page: Path) -> str:
    """The headings of a log; the first sentence of the class of a reference, or of another page."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall("^## (.*)$", text, re.MULTILINE)
    if page.parent == LOGS and page.stem not in ("index", "machine"):
        return "; ".join(headings)
    if found := re.search(r"^# .*\n\n::: ([\w.]+)\.(\w+)$", text, re.MULTILINE):
        text = inspect.getdoc(getattr(importlib.import_module(found[1]), found[2])) or ""
    blocks = (" ".join(each.split()) for each in text.split("\n\n"))
    plain = next(each for each in blocks if not each.startswith(("#", "|", "<", "```")))
    sentence = re.split(r"(?<=[.?])\s(?=[A-Z`*\[])|(?<=。)", plain)[0].rstrip(":")
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", sentence)


if __name__ == "__main__":
    for file in PAGES:
        file.write_text(fill(file.read_text(encoding="utf-8")), encoding="utf-8")
    INDEX.write_text(list_site(), encoding="utf-8")
