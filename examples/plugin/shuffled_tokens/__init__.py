"""Shuffled-token detection (Panda et al., 2021), as a plug-in of plmctl."""
