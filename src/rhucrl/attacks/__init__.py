"""Whose worst case: families of adversaries, searches for the worst one, the oracle, anybody's policy."""
