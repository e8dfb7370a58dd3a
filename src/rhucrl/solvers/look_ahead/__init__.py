"""Candidates and fitted value iteration: for games of few dimensions."""
