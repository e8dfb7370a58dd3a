"""Algorithm 1 (`alg:R-HUCRL_protocol`), the loop that saves every episode, and the agent that users meet."""
