"""One algorithm of one library on one task: `python peer.py '{"algo": "sac", "task": "Pendulum-v1", ...}'`.

Needs nothing of this package unless the library is `rhucrl`, so that another environment's Python can run it. Prints
CPU seconds of `steps` environment steps after the first `warm` ones, how many steps those were, and ten returns. With
`timing` every library does the same number of gradient steps, and there are no returns.
"""

import importlib
import json
import sys
import time

TRIALS = 10
ROWS = 800  # of a batch of PPO, in 80 steps over all of it
EQUAL = {  # our numbers in the words of the others
    "sac": {"learning_starts": 200, "batch_size": 256},
    "ppo": {"n_steps": ROWS, "batch_size": ROWS, "n_epochs": 80, "target_kl": 0.005},  # which stops at 1.5 times that
}


def of_peer(options: dict) -> dict:
    import gymnasium as gym

    module = importlib.import_module({"sb3": "stable_baselines3", "sbx": "sbx"}[options["library"]])
    env = gym.make(options["task"])
    more = EQUAL[options["algo"]]
    if options["timing"]:
        more.pop("target_kl", None)
    model = getattr(module, options["algo"].upper())("MlpPolicy", env, seed=options["seed"], **more)
    if options["warm"]:
        model.learn(options["warm"])
    clock, before = time.process_time(), model.num_timesteps
    model.learn(options["steps"], reset_num_timesteps=not options["warm"])
    result = {"cpu": time.process_time() - clock, "steps": model.num_timesteps - before, "returns": []}
    for trial in range(0 if options["timing"] else TRIALS):
        (obs, _), gain, over = env.reset(seed=1000 + trial), 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(model.predict(obs, deterministic=True)[0])
            gain, over = gain + float(reward), terminated or truncated
        result["returns"].append(gain)
    return result


def of_rhucrl(options: dict) -> dict:
    import gymnasium as gym

    import rhucrl
    from rhucrl.attacks.arena import HostArena, gains
    from rhucrl.config import TrainConfig
    from rhucrl.runtime.compilation import enable_cache
    from rhucrl.training import loop as training

    enable_cache()
    env = rhucrl.wrap(gym.make(options["task"]), "none", reward="learned", terminated="learned")
    most = options["warm"] + options["steps"]
    numbers = {"setting": "none", "seed": options["seed"], "episodes": max(1, most // env.game.horizon)}
    if options["algo"] == "ppo":
        numbers |= {"rollouts": max(1, ROWS // env.game.horizon)}
        numbers |= {"divergence": float("inf")} if options["timing"] else {}
    config = TrainConfig.preset(options["task"], algo=options["algo"], **numbers)
    its, steps, index = training.learner_of(config), 0, 0
    state = its.initial(env)
    clock, before = time.process_time(), 0
    while steps < most:
        state, metrics = its.episode(env, state, index)
        steps, index = steps + metrics["steps"], index + 1
        if steps <= options["warm"]:
            clock, before = time.process_time(), steps
    result = {"cpu": time.process_time() - clock, "steps": steps - before, "returns": []}
    if not options["timing"]:
        result["returns"] = gains(HostArena(state.last.policy, env), None, range(1000, 1000 + TRIALS))
    return result


if __name__ == "__main__":
    given = {"warm": 0, "timing": False, "seed": 0, **json.loads(sys.argv[1])}
    print(json.dumps((of_rhucrl if given["library"] == "rhucrl" else of_peer)(given)))
