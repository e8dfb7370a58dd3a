"""Actor-critic for both problems, in the model: for actions of any dimension."""
