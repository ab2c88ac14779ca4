"""`make attack`: seeded campaigns that try to break a bundle, a picture, a stream or a run.

A module of this package that has a function `cases(plan)` is a campaign. It yields one `Case` for
each thing that it tried. A case is held when the program refused or survived as documented, and
broken when it did not. `python -m tests.attack --help` lists the campaigns.
"""
