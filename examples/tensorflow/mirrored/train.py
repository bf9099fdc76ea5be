"""Linear regression with MultiWorkerMirroredStrategy and a custom loop: every replica holds the weights and trains."""

import argparse
import sys

import tensorflow as tf

import shoal

BATCH, FEATURES = 64, 8


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    me = strategy.cluster_resolver
    name, size = f"{me.task_type} {me.task_id}", strategy.num_replicas_in_sync
    print(f"{name} of {size}")
    with strategy.scope():
        weights = tf.Variable(tf.zeros([FEATURES, 1]))
    batches = iter(strategy.distribute_datasets_from_function(data))

    @tf.function
    def step(batches):
        def on_replica(batch):
            x, y = batch
            error = tf.matmul(x, weights) - y
            gradient = tf.matmul(x, error, transpose_a=True) / BATCH
            total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
            weights.assign_sub(args.lr * total)
            return tf.reduce_mean(error**2)

        own = strategy.run(on_replica, args=(next(batches),))
        return own, strategy.reduce(tf.distribute.ReduceOp.MEAN, own, axis=None)

    first = last = None
    for number in range(args.steps + 1):
        own, last = step(batches)
        first = last if first is None else first
        shoal.log(loss=float(own), step=number)
        if number % 20 == 0:
            print(f"{name}  step {number:3}  loss {own:.4f}, of all replicas {last:.4f}")

    fell = last < first / 10
    print(f"{name}  loss fell from {first:.4f} to {last:.4f}" if fell else "loss did not fall to a tenth")
    return 0 if fell else 1


def data(context):
    """Endless batches of points on one plane, different ones in every replica."""
    plane = tf.reshape(tf.linspace(-2.0, 2.0, FEATURES), [FEATURES, 1])

    def batch(number):
        x = tf.random.stateless_normal([BATCH, FEATURES], seed=[context.input_pipeline_id, number])
        return x, tf.matmul(x, plane)

    return tf.data.Dataset.counter().map(batch)


if __name__ == "__main__":
    sys.exit(main())
