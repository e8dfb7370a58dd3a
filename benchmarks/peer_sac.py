"""SBX's soft actor-critic, its defaults: `python peer_sac.py TASK STEPS SEED` prints CPU seconds and ten returns."""

import sys
import time

import gymnasium as gym
from sbx import SAC

task, steps, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
env, clock = gym.make(task), time.process_time()
model = SAC("MlpPolicy", env, seed=seed, learning_starts=100, verbose=0)
model.learn(steps)
cpu, returns = time.process_time() - clock, []
for trial in range(10):
    (obs, _), gain, over = env.reset(seed=1000 + trial), 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(model.predict(obs, deterministic=True)[0])
        gain, over = gain + float(reward), terminated or truncated
    returns.append(gain)
print(cpu, *returns)
