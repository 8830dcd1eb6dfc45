"""How many of 200 prompts get the texts that `transformers`' generate writes, as a Markdown table.

    python -m tests.generation.equality_table

Random models in float64 on both sides; every text of a beam is compared, in order.
"""

from __future__ import annotations

from tests.generation import generation_peers as peers

PROMPTS = 200


def main() -> None:
    print(
        "| search | " + " | ".join(peers.PEERS) + " |\n|---" * 1 + "|---" * len(peers.PEERS) + "|"
    )
    models = [make() for make in peers.PEERS.values()]
    given = peers.prompts(PROMPTS)
    for name, (search, settings) in peers.SETTINGS.items():
        cells = []
        for peer in models:
            if "forced_bos_token_id" in settings and not peer.source:
                cells.append("")
                continue
            ours = peers.written_by_ours(peer, given, search)
            theirs = peers.written_by_theirs(peer, given, settings)
            texts = [[peers.cut(text.ids, peer.end) for text in found] for found in ours]
            equal = sum(mine == other for mine, other in zip(texts, theirs, strict=True))
            ended = sum(text.finished for found in ours for text in found) / sum(map(len, ours))
            cells.append(f"{equal} of {PROMPTS} ({sum(map(len, ours))} texts, {ended:.0%} ended)")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
