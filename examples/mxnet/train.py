"""Linear regression with MXNet's distributed key-value store.

The scheduler and the servers run this same file and never pass one line of it: with DMLC_ROLE set, `import mxnet`
serves until the workers are done, then ends the process. What follows is the workers' part.
"""

import argparse
import os
import sys

print(f"{os.environ['DMLC_ROLE']} in {os.environ.get('SHOAL_REPLICA', 'no replica')}")

import mxnet as mx  # noqa: E402  the scheduler and the servers stay here

import shoal  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.2)
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()

store = mx.kv.create("dist_sync")  # ranks are given out by the scheduler: rank 0 need not be worker-0
print(f"rank {store.rank} of {store.num_workers}")

# Every worker has its own points on the same line.
mx.random.seed(store.rank)
true_weights = mx.nd.array([2.0, -3.4, 1.5, 0.5])
x = mx.nd.random.normal(shape=(200, 4))
y = mx.nd.dot(x, true_weights) + 0.01 * mx.nd.random.normal(shape=200)

weights = mx.nd.zeros(4)
store.init("weights", weights)
# The servers add up the workers' gradients and take the step, so that it is taken once.
store.set_optimizer(mx.optimizer.SGD(learning_rate=args.lr, rescale_grad=1 / store.num_workers))

first = last = None
for step in range(args.steps + 1):
    store.pull("weights", out=weights)
    error = mx.nd.dot(x, weights) - y
    last = (error**2).mean().asscalar()
    first = last if first is None else first
    shoal.log(loss=float(last), step=step)
    if step % 20 == 0:
        print(f"rank {store.rank}  step {step:3}  loss {last:.5f}")
    if step < args.steps:
        store.push("weights", mx.nd.dot(x.T, error) / len(x))

print(f"rank {store.rank}  loss fell from {first:.4f} to {last:.5f}" if last < first / 100 else "loss did not fall")
sys.exit(0 if last < first / 100 else 1)
