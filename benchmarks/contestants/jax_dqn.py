"""DQN as one jitted loop in JAX: jax_dqn.py ENVIRONMENT WARM_UP SEEDS [product].

Environment, replay and updates are inside `lax.scan`; several seeds train side by side under
`vmap`. An update is made at every step. Steps are counted over all seeds. With "product", MinAtar's
convolution is written as a matrix product, which XLA computes faster on a CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import optax
from turn import Turns

CHUNK = 100  # steps of one call
CAPACITY, BATCH, DISCOUNT = 20_000, 32, 0.99
name, warm_up, seeds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
minatar, as_product = name == "minatar/breakout", "product" in sys.argv[4:]
sync_period = 1_000 if minatar else 100  # a multiple of CHUNK, as is the warm-up


class Network(nn.Module):
    """The network of our preset for the environment."""

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        """Q [B, A] of observations [B, ...]."""
        x = observation.astype(jnp.float32)
        if minatar:
            if as_product:
                shifted = [x[:, i : i + 8, j : j + 8] for i in range(3) for j in range(3)]
                x = nn.Dense(16)(jnp.concatenate(shifted, axis=3))
            else:
                x = nn.Conv(16, (3, 3), padding="VALID")(x)
            x = nn.relu(nn.Dense(128)(nn.relu(x).reshape(len(x), -1)))
        else:
            x = nn.relu(nn.Dense(64)(nn.relu(nn.Dense(64)(x))))
        return nn.Dense(environment.num_actions)(x)


class Transition(NamedTuple):
    """One step, or a batch, or the whole replay."""

    x: jax.Array
    action: jax.Array
    reward: jax.Array
    discount: jax.Array
    y: jax.Array


class Learner(NamedTuple):
    """What an update changes."""

    online: Any
    target: Any
    optimiser: Any


class State(NamedTuple):
    """The state of all seeds.

    The replay is [CAPACITY, seeds, ...], everything else [seeds, ...]; one seed has no such axis.
    """

    learner: Learner
    game: Any
    observation: jax.Array
    replay: Transition
    key: jax.Array


if minatar:
    environment, parameters = gymnax.make("Breakout-MinAtar", use_minimal_action_set=False)
    optimiser = optax.rmsprop(2.5e-4, decay=0.95, eps=1e-4, centered=True, eps_in_sqrt=True)
else:
    environment, parameters = gymnax.make("CartPole-v1")
    optimiser = optax.adam(1e-3)
network = Network()


def over_seeds(function: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
    """The function for all seeds; a single one is faster without `vmap`."""
    return function if seeds == 1 else jax.vmap(function, in_axes)


def stored(observation: jax.Array) -> jax.Array:
    """As it is kept in the replay: MinAtar's binary channels as bytes."""
    return observation.astype(jnp.uint8) if minatar else observation


def initial(key: jax.Array) -> tuple[Learner, Any, jax.Array]:
    """A seed's weights and its first episode."""
    observation, game = environment.reset(key, parameters)
    weights = network.init(key, observation[None])
    return Learner(weights, weights, optimiser.init(weights)), game, observation


def act(weights: Any, game: Any, observation: jax.Array, key: jax.Array, step: jax.Array) -> Any:
    """One ε-greedy step of a seed's environment, which starts the next episode by itself."""
    explore, choose, play = jax.random.split(key, 3)
    epsilon = jnp.clip(1 - (step - warm_up) / 100, 0.1, 1.0)
    greedy = network.apply(weights, observation[None])[0].argmax()
    random = jax.random.randint(choose, (), 0, environment.num_actions)
    action = jnp.where(jax.random.uniform(explore) < epsilon, random, greedy)
    following, game, reward, terminated, _, info = environment.step(play, game, action, parameters)
    final = stored(info["final_observation"])
    discount = jnp.where(terminated, 0.0, DISCOUNT)
    return game, following, Transition(stored(observation), action, reward, discount, final)


def learn(learner: Learner, batch: Transition) -> Learner:
    """One update of a seed's weights."""

    def loss(online: Any) -> jax.Array:
        best = network.apply(learner.target, batch.y).max(axis=1)
        target = jax.lax.stop_gradient(batch.reward + batch.discount * best)
        q = jnp.take_along_axis(network.apply(online, batch.x), batch.action[:, None], axis=1)
        return optax.huber_loss(q[:, 0], target).mean()

    gradient = jax.grad(loss)(learner.online)
    change, averages = optimiser.update(gradient, learner.optimiser, learner.online)
    online = optax.apply_updates(learner.online, change)
    return Learner(online, learner.target, averages)


def make_step(learning: bool, state: State, step: jax.Array) -> tuple[State, None]:
    """Act, store and learn, for all seeds."""
    key, act_key, sample_key = over_seeds(lambda key: tuple(jax.random.split(key, 3)))(state.key)
    game, observation, transition = over_seeds(act, (0, 0, 0, 0, None))(
        state.learner.online, state.game, state.observation, act_key, step
    )
    slot = step % CAPACITY
    replay = jax.tree.map(
        lambda column, row: jax.lax.dynamic_update_index_in_dim(column, row, slot, 0),
        state.replay,
        transition,
    )
    learner = state.learner
    if learning:
        filled = jnp.minimum(step + 1, CAPACITY)
        draw = over_seeds(lambda key: jax.random.randint(key, (BATCH,), 0, filled))
        rows = draw(sample_key)
        index = rows if seeds == 1 else (rows, jnp.arange(seeds)[:, None])
        batch = jax.tree.map(lambda column: column[index], replay)
        learner = over_seeds(learn)(learner, batch)
    return State(learner, game, observation, replay, key), None


@partial(jax.jit, static_argnames="learning", donate_argnames="state")
def chunk(state: State, start: jax.Array, learning: bool) -> State:
    """So many steps from `start`, after a copy to the target network where one is due."""
    online, target, averages = state.learner
    due = start % sync_period == 0
    target = jax.tree.map(lambda new, old: jnp.where(due, new, old), online, target)
    state = state._replace(learner=Learner(online, target, averages))
    steps = start + jnp.arange(CHUNK)
    return jax.lax.scan(partial(make_step, learning), state, steps)[0]


def main() -> None:
    """Train in turns."""
    key = jax.random.key(0)
    keys = key if seeds == 1 else jax.random.split(key, seeds)
    learner, game, observation = over_seeds(initial)(keys)
    frames = jnp.zeros((CAPACITY, *observation.shape), stored(observation).dtype)
    zeros = jnp.zeros((CAPACITY, *keys.shape))
    replay = Transition(frames, zeros.astype(int), zeros, zeros + 0, frames + 0)
    # Buffers are donated, so that no two fields may share one.
    learner = learner._replace(target=jax.tree.map(jnp.copy, learner.target))
    state, step = State(learner, game, observation, replay, keys), 0
    turns = Turns(seeds * (warm_up + 200))
    while True:
        state = jax.block_until_ready(chunk(state, jnp.asarray(step), learning=step >= warm_up))
        step += CHUNK
        if not turns.step(seeds * CHUNK):
            break


if __name__ == "__main__":
    main()
