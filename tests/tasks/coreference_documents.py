"""Documents in the layouts of coreference, for tests."""

from __future__ import annotations

import json
import random

CONLL = """#begin document (bc/x/00/x_0000); part 000
bc/x/00/x_0000   0   0    Anna   NNP  (TOP(S*  -  -  -  A1  *  (0)
bc/x/00/x_0000   0   1   likes   VBZ  (VP*     -  -  -  A1  *  -
bc/x/00/x_0000   0   2     her   PRP  (NP*     -  -  -  A1  *  (1|(0)
bc/x/00/x_0000   0   3     cat    NN  *))))    -  -  -  A1  *  1)

bc/x/00/x_0000   0   0      It   PRP  (TOP*    -  -  -  B2  *  (1)
bc/x/00/x_0000   0   1  sleeps   VBZ  *)       -  -  -  B2  *  -

#end document
#begin document (bc/x/00/x_0000); part 001
bc/x/00/x_0000   1   0     Yes    UH  (TOP*)   -  -  -  B2  *  -

#end document
"""
RECORD = {
    "doc_key": "bc/x/00/x_0000_0",
    "sentences": [["Anna", "likes", "her", "cat"], ["It", "sleeps"]],
    "speakers": [["A1"] * 4, ["B2"] * 2],
    "clusters": [[[0, 0], [2, 2]], [[2, 3], [4, 4]]],
}


def write_stories(count: int, seed: int) -> str:
    """JSON lines: a woman and a man do things, and "she" and "he" are those two."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        people = [
            (rng.choice(["Anna", "Berta", "Clara"]), "she"),
            (rng.choice(["Otto", "Paul"]), "he"),
        ]
        rng.shuffle(people)
        sentences = [[name, "is", "here"] for name, _ in people]
        clusters = [[[0, 0]], [[3, 3]]]
        for _ in range(4):
            who = rng.randrange(2)
            clusters[who].append([sum(map(len, sentences))] * 2)
            sentences.append([people[who][1], rng.choice(["sings", "sleeps"])])
        clusters = [own for own in clusters if len(own) > 1]
        lines.append(json.dumps({"sentences": sentences, "clusters": clusters}))
    return "\n".join(lines) + "\n"
