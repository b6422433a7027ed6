"""Measures scans beside a copy of the same bytes and beside other libraries: what ``gpuscan bench`` runs.

Data goes one way here too: a case (`cases`) is filled with inputs and the results to expect (`inputs`); contenders
(`scans`, `recurrences`, `copying`, `peers`) are made ready, timed and checked (`measuring`); `suite` runs them all,
and `table`, `plot` and `results` show what they took.
"""
