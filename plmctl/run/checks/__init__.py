"""Do the parts of a run fit together, and what will it cost?"""
