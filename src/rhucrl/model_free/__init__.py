"""Algorithms without a model: SAC and PPO for one or both players."""
