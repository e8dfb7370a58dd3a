"""Another library's algorithm with its defaults: `python peer.py ALGO TASK LIBRARY STEPS SEED`.

Prints CPU seconds of learning and ten returns.
"""

import importlib
import sys
import time

import gymnasium as gym

algo, task, library, steps, seed = sys.argv[1:]
module = importlib.import_module({"sb3": "stable_baselines3", "sbx": "sbx"}[library])
env, clock = gym.make(task), time.process_time()
more = {"learning_starts": 200} if algo == "sac" else {}
model = getattr(module, algo.upper())("MlpPolicy", env, seed=int(seed), **more)
model.learn(int(steps))
cpu, returns = time.process_time() - clock, []
for trial in range(10):
    (obs, _), gain, over = env.reset(seed=1000 + trial), 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(model.predict(obs, deterministic=True)[0])
        gain, over = gain + float(reward), terminated or truncated
    returns.append(gain)
print(cpu, *returns)
