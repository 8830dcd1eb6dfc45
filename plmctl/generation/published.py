"""Settings of `generation_config.json`: how a published model writes, as settings of our searches,
and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plmctl.generation.search import SearchFacts

FILE = "generation_config.json"
# values of the library's settings that say nothing; those of others: null
DEFAULTS: Mapping[str, Any] = {
    "max_length": 20,
    "min_length": 0,
    "do_sample": False,
    "early_stopping": False,
    "num_beams": 1,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "penalty_alpha": 0.0,
    "num_return_sequences": 1,
}
LENGTHS = ("max_length", "max_new_tokens", "min_length", "min_new_tokens")
# settings of one search: theirs -> ours
BEAM = {
    "num_beams": "width",
    "length_penalty": "alpha",
    "early_stopping": "early",
    "num_return_sequences": "count",
}
SAMPLE = {
    "num_return_sequences": "count",
    **{name: name for name in ("temperature", "top_k", "top_p", "min_p", "typical_p")},
}
SEARCHES: Mapping[str, Mapping[str, str]] = {
    "greedy": {},
    "sample": SAMPLE,
    "contrastive": {"penalty_alpha": "alpha", "top_k": "top_k"},
    "beam": BEAM,
    "diverse": {**BEAM, "num_beam_groups": "groups", "diversity_penalty": "diversity"},
    "constrained": {**BEAM, "force_words_ids": "phrases"},
}
# values of the library where a search of ours has others
_THEIRS: Mapping[str, Any] = {"top_k": 50, "diversity_penalty": 0.0}
RULES = {
    "no_repeat_ngram_size": "no_repeat_ngram",
    "repetition_penalty": "repetition_penalty",
    "forced_eos_token_id": "last",
}
EXCLUDED = ("bad_words_ids", "suppress_tokens")  # sequences, and tokens alone
# further settings that change texts, which no search of ours has
OTHERS = frozenset(DEFAULTS) | {
    *("max_new_tokens", "min_new_tokens", "bad_words_ids", "forced_eos_token_id"),
    *("suppress_tokens", "begin_suppress_tokens", "exponential_decay_length_penalty"),
    *("sequence_bias", "guidance_scale", "force_words_ids"),
}


def find_stated(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of writing that say something."""
    stated = {key: settings[key] for key in sorted(OTHERS) if settings.get(key) is not None}
    return {key: value for key, value in stated.items() if value not in (DEFAULTS.get(key), [], {})}


def to_settings(
    stated: Mapping[str, Any], *, forced: int | None
) -> tuple[dict[str, Any], list[str]]:
    """(settings of `plmctl generate`, the names of stated ones that it has not).

    Lengths of the library count the first token of a decoder and a forced one, ours neither.

    Differs: A penalty of the length does not count a forced token.

    Args:
        stated: The published settings, from `find_stated`.
        forced: The number of tokens that a decoder is forced to begin with; None: it continues its
            prompt, which `max_length` counts, too.
    """
    name = _name_search(stated)
    names = {**SEARCHES[name], **RULES}
    values = {**_THEIRS, **stated}
    found = {f"search.{ours}": values[key] for key, ours in names.items() if key in values}
    if excluded := _list_excluded(stated):
        found["search.excluded"] = excluded
    if "search.top_k" in found:
        found["search.top_k"] = found["search.top_k"] or None
    lengths = {"max_new": _count("max", stated, forced)}
    lengths["search.min_length"] = _count("min", stated, forced)
    found |= {key: max(0, value) for key, value in lengths.items() if value is not None}
    read = {"do_sample", *LENGTHS, *EXCLUDED, *RULES}.union(*SEARCHES.values())
    unread = [key for key in stated if key not in read]
    unread += [key for key in ("force_words_ids",) if key in stated and name != "constrained"]
    unread += [key for key in ("max_length", "min_length") if forced is None and key in stated]
    if stated.get("do_sample") and name != "sample":
        unread.append("do_sample")
    if isinstance(found.get("search.last"), list):
        del found["search.last"]  # one of several ends
        unread.append("forced_eos_token_id")
    return ({"search": name, **found} if found else {}), unread


def _name_search(stated: Mapping[str, Any]) -> str:
    """Our search of the stated settings."""
    if stated.get("num_beams", 1) > 1:
        words = stated.get("force_words_ids", [])
        if words and all(isinstance(token, int) for ids in words for token in ids):
            return "constrained"
        return "diverse" if stated.get("num_beam_groups", 1) > 1 else "beam"
    if stated.get("do_sample", False):
        return "sample"
    contrasts = stated.get("penalty_alpha", 0) > 0 and stated.get("top_k", _THEIRS["top_k"]) > 1
    return "contrastive" if contrasts else "greedy"


def _list_excluded(stated: Mapping[str, Any]) -> list[list[int]]:
    """The sequences of ids that no text contains."""
    sequences, tokens = (stated.get(key, []) for key in EXCLUDED)
    return [*sequences, *([token] for token in tokens)]


def _count(end: str, stated: Mapping[str, Any], forced: int | None) -> int | None:
    """The longest or shortest text in our count."""
    new, whole = stated.get(f"{end}_new_tokens"), stated.get(f"{end}_length")
    if new is not None:
        return int(new) - (forced or 0)
    return None if whole is None or forced is None else int(whole) - 1 - forced


def state_search(facts: SearchFacts, *, max_new: int, forced: int) -> dict[str, Any]:
    """The published settings of a search of ours.

    Args:
        max_new: The tokens of the longest text.
        forced: The number of tokens that the decoder is forced to begin with.
    """
    stated: dict[str, Any] = {
        "do_sample": facts.draws,
        "num_beams": facts.width,
        "num_return_sequences": facts.count,
        "num_beam_groups": facts.groups,
        "diversity_penalty": facts.diversity,
        "force_words_ids": [*facts.phrases],
        "penalty_alpha": facts.contrast,
        "max_new_tokens": max_new + forced,
        **{theirs: getattr(facts.rules, ours) for theirs, ours in RULES.items()},
        "bad_words_ids": [ids for ids in facts.rules.excluded if len(ids) > 1],
        "suppress_tokens": [ids[0] for ids in facts.rules.excluded if len(ids) == 1],
    }
    if facts.rules.min_length:
        stated["min_new_tokens"] = facts.rules.min_length + forced
    if facts.width > 1:
        stated |= {"length_penalty": facts.alpha, "early_stopping": facts.early}
    if facts.draws:
        stated |= {theirs: getattr(facts, ours) for theirs, ours in SAMPLE.items()}
    if facts.draws or facts.contrast:
        return find_stated(stated) | {"top_k": facts.top_k or 0}
    return find_stated(stated)
