"""Linear regression with ParameterServerStrategy and a custom loop.

The workers and the parameter server only serve; they never end by themselves. The chief schedules steps on whichever
worker is free, so a step may use weights that are already a little old.
"""

import argparse
import sys

import tensorflow as tf

import shoal

BATCH, FEATURES = 64, 8


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()

    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type != "chief":
        print(f"{cluster.task_type} {cluster.task_id} serves")
        tf.distribute.Server(cluster.cluster_spec(), cluster.task_type, cluster.task_id).join()
    return train(cluster, args.lr, args.steps)


def train(cluster, rate, steps):
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([FEATURES, 1]))

    @tf.function
    def step(number, batches):
        def on_worker(batch):
            x, y = batch
            error = tf.matmul(x, weights) - y
            weights.assign_sub(rate * tf.matmul(x, error, transpose_a=True) / BATCH)
            return tf.reduce_mean(error**2)

        loss = strategy.run(on_worker, args=(next(batches),))
        if number % 20 == 0:
            tf.print("step", number, " loss", loss)  # in the log of the worker that took this step
        return loss

    batches = iter(coordinator.create_per_worker_dataset(data))
    numbers = tf.range(steps)  # tensors: for each new Python number TensorFlow would trace `step` again
    means = []
    for start in range(0, steps, 20):
        losses = [coordinator.schedule(step, args=(number, batches)) for number in numbers[start : start + 20]]
        coordinator.join()
        means.append(sum(loss.fetch() for loss in losses) / len(losses))
        shoal.log(loss=float(means[-1]), step=start + len(losses))
        print(f"steps {start} to {start + len(losses) - 1}  loss {means[-1]:.4f}")

    fell = means[-1] < means[0] / 10
    print(f"loss fell from {means[0]:.4f} to {means[-1]:.4f}" if fell else "loss did not fall to a tenth")
    return 0 if fell else 1


def data():
    """Endless batches of points on one plane; every worker makes its own."""
    plane = tf.reshape(tf.linspace(-2.0, 2.0, FEATURES), [FEATURES, 1])

    def batch(_):
        x = tf.random.normal([BATCH, FEATURES])
        return x, tf.matmul(x, plane) + 0.1 * tf.random.normal([BATCH, 1])

    return tf.data.Dataset.counter().map(batch)


if __name__ == "__main__":
    sys.exit(main())
