"""Parts that moved: saved runs, recipes and plug-ins may name them where they were before."""

from __future__ import annotations

from typing import Any

_READERS = {  # module and class in plmctl.tasks before -> module in plmctl.tasks.readers
    "arc_files.ArcFiles": "arc",
    "articles.Articles": "articles",
    "aspect_files.AspectFiles": "aspects",
    "aspect_terms.AspectTerms": "aspect_terms",
    "bracket_files.BracketFiles": "brackets",
    "candidate_files.CandidateFiles": "wikihop",
    "choices.Choices": "choices",
    "cmrc_files.CmrcFiles": "cmrc",
    "conll.Columns": "conll",
    "conllu.Conllu": "conllu",
    "copa_files.CopaFiles": "copa",
    "coqa_files.CoqaFiles": "coqa",
    "coreference_files.CoreferenceFiles": "coreference",
    "dependency_files.DependencyTrees": "dependency",
    "diagnostics.Diagnostics": "diagnostics",
    "dialogues.Dialogues": "dialogues",
    "documents.DocumentFiles": "documents",
    "hotpot_files.HotpotFiles": "hotpot",
    "label_table.LabelTable": "label_table",
    "multirc_files.MultircFiles": "multirc",
    "nli_files.InferenceTriples": "nli",
    "pairs.Pairs": "pairs",
    "quac_files.QuacFiles": "quac",
    "questions.QuestionFiles": "questions",
    "race_files.RaceFiles": "race",
    "ranking_files.RankingFiles": "ranking",
    "record_files.RecordFiles": "record",
    "relation_files.RelationFiles": "relation",
    "squad_files.SquadFiles": "squad",
    "srl_files.Propositions": "srl",
    "streusle.Streusle": "streusle",
    "tables.Table": "tables",
    "tree_writing.TreePairs": "tree_pairs",
    "trivia_files.TriviaFiles": "trivia",
    "typing_files.TypingFiles": "entity_types",
    "wic_files.WicFiles": "wic",
    "wsc_files.WscFiles": "wsc",
    "xnli_files.XnliFiles": "xnli",
}
_PROBES = (  # module and class in plmctl.tasks before, in plmctl.probes now
    "classified_links.ClassifiedLinks",
    "context_length.ContextLength",
    "described_links.DescribedLinks",
    "dynamic.RMSAdaptation",
    "dynamic.SGDAdaptation",
    "fact_completion.FactCompletion",
    "held_out.HeldOut",
    "lm.LanguageModel",
    "sentence_similarity.SentenceSimilarity",
    "wnlampro.WNLaMPro",
    "word_analogies.WordAnalogies",
    "word_similarity.WordSimilarity",
)
# `_target_` before -> `_target_` now
MOVED = {
    "plmctl.tasks.record.EntityCloze": "plmctl.tasks.entity_cloze.EntityCloze",
    **{
        f"plmctl.tasks.{before}": f"plmctl.tasks.readers.{module}.{before.rpartition('.')[2]}"
        for before, module in _READERS.items()
    },
    **{f"plmctl.tasks.{part}": f"plmctl.probes.{part}" for part in _PROBES},
}
_BEFORE = {now: before for before, now in MOVED.items()}


def find_moved(target: str) -> str:
    """The present name of a part."""
    return MOVED.get(target, target)


def name_before(target: str) -> str:
    """The first name of a part, from which keys of jobs are made."""
    return _BEFORE.get(target, target)


def rename_moved(settings: Any) -> Any:
    """Nested settings in which every `_target_` has its present name."""
    if isinstance(settings, dict):
        return {
            key: find_moved(value)
            if key == "_target_" and isinstance(value, str)
            else rename_moved(value)
            for key, value in settings.items()
        }
    return [rename_moved(value) for value in settings] if isinstance(settings, list) else settings
