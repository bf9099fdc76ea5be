"""Linear regression in JAX: the batch is one array spread over all processes, the weights are in each of them."""

import argparse
import os
import sys

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import shoal

BATCH, FEATURES = 64, 8  # per process


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Of the three variables JAX reads only the first by itself.
    jax.distributed.initialize(
        coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
        process_id=int(os.environ["JAX_PROCESS_ID"]),
    )
    rank = jax.process_index()
    print(f"process {rank} of {jax.process_count()}: {jax.local_device_count()} of {jax.device_count()} devices")

    mesh = Mesh(jax.devices(), ("batch",))
    spread = NamedSharding(mesh, PartitionSpec("batch"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    own_x, own_y = data(rank)
    x = jax.make_array_from_process_local_data(spread, own_x)
    y = jax.make_array_from_process_local_data(spread, own_y)
    weights = jax.make_array_from_process_local_data(everywhere, jnp.zeros(FEATURES))

    @jax.jit
    def step(weights, x, y):
        # The mean is over the whole array, so the compiler adds what the processes have to exchange.
        loss, gradient = jax.value_and_grad(mean_square)(weights, x, y)
        return loss, weights - args.lr * gradient

    losses = []
    for number in range(args.steps + 1):
        loss, new_weights = step(weights, x, y)
        losses.append(loss.item())
        shoal.log(loss=losses[-1], step=number)
        if number % 20 == 0:
            own = mean_square(weights.addressable_data(0), own_x, own_y)
            print(f"process {rank}  step {number:3}  loss {own:.4f}, of all processes {losses[-1]:.4f}")
        weights = new_weights

    fell = losses[-1] < losses[0] / 10
    print(f"process {rank}  loss fell from {losses[0]:.4f} to {losses[-1]:.4f}" if fell else "loss did not fall enough")
    jax.distributed.shutdown()  # waits for the others: the coordinator must not leave first
    return 0 if fell else 1


def mean_square(weights, x, y):
    return jnp.mean((x @ weights - y) ** 2)


def data(seed):
    """Points on one plane, different ones in every process."""
    x = jax.random.normal(jax.random.key(seed), (BATCH, FEATURES))
    return x, x @ jnp.linspace(-2.0, 2.0, FEATURES)


if __name__ == "__main__":
    sys.exit(main())
