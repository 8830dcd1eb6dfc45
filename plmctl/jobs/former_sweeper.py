"""`hydra/sweeper=optuna` of earlier versions, answered with the line of `plmctl search`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from plmctl.config.composer import open_composer
from plmctl.config.plugins import as_words
from plmctl.config.quoting import quote
from plmctl.config.spec import Provenance, key_of
from plmctl.config.word_grammar import parse_word
from plmctl.core.errors import UsageError
from plmctl.core.spelling import spell_line, spell_setting, spell_word

WORD = "hydra/sweeper=optuna"
SAMPLERS = ("cmaes", "grid", "random", "tpe")
TRIALS = "20"  # its own number of individuals
SEARCHED = ("pretrain", "finetune")
# its settings, and ours
NAMES = {
    "hydra.sweeper.n_trials": "budget.individuals",
    "hydra.sweeper.n_jobs": "parallel",
    "hydra.sweeper.sampler.seed": "seed",
    "hydra.sweep.dir": "out",
    "run.dir": "out",
}


def refuse_former(given: Provenance) -> None:
    """UsageError for Optuna's sweeper, with the search that does the same."""
    if WORD not in given.overrides:
        return
    if given.command not in SEARCHED:
        named = ", ".join(SEARCHED)
        fix = "# leave it out; with -m, choice(...) and range(...) list the jobs"
        raise UsageError(f"{WORD}: plmctl search is for {named}\n  fix: {fix}")
    line = " ".join(["plmctl", "search", *_translate(given)])
    own = spell_line(*as_words(given.plugins, given.config_dirs)).partition(" ")[2]
    fix = f"{line} {own}".strip()
    raise UsageError(f"{WORD}: a search is a command of its own\n  fix: {fix}")


def _translate(given: Provenance) -> list[str]:
    """The words of the search."""
    fixed, swept = _divide(given)
    words = [] if given.command == "pretrain" else ["individual.command=finetune"]
    words += [f"individual.recipe={given.recipe}"] if given.recipe else []
    words += [spell_setting("individual.overrides", fixed)] if fixed else []
    words += [spell_setting("space.words", swept)]
    sampler = next(
        (
            word.partition("=")[2]
            for word in given.overrides
            if word.startswith("hydra/sweeper/sampler=")
        ),
        "tpe",
    )
    words.append(f"strategy={sampler if sampler in SAMPLERS else 'tpe'}")
    known = {"budget.individuals": TRIALS}
    for word in given.overrides:
        key, _, value = word.partition("=")
        if key in NAMES:
            known[NAMES[key]] = value
    return [*words, *(spell_word(f"{key}={value}") for key, value in known.items())]


def _divide(given: Provenance) -> tuple[list[str], list[str]]:
    """(the words of every job, the words with several values)."""
    fixed: list[str] = []
    swept: list[str] = []
    with open_composer(given.verb, given.config_dirs) as composer:
        for word in _drop_hydra(given.overrides):
            try:
                several = parse_word(quote(word, sweep=True), composer).sweeps
            except ValueError:
                several = False
            (swept if several else fixed).append(word)
    return fixed, swept


def _drop_hydra(words: Sequence[str]) -> list[str]:
    """The words of the jobs, without those of the sweep."""
    kept = (word for word in words if not re.match("hydra[/.]", word))
    return [word for word in kept if key_of(word) != "run.dir"]
