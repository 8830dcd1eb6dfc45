"""Do the parts of a run fit together?"""
