"""Dynamics models: what they predict, how they are fitted, and how far they may be trusted."""
