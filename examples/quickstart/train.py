"""Logistic regression with a parameter server, in the standard library alone.

The master draws the first weights and hands them to the parameter server. Each worker has its own share of the data:
it takes the weights, sends a gradient, and gets the next weights once every worker has sent one. The master follows
the loss on data that nobody trains on, and ends when the workers have.

A message is one line of JSON and so is its answer, which comes when it can: waiting for it keeps the replicas in step.
"""

import json
import math
import os
import random
import socket
import socketserver
import sys
import threading
import time
from contextlib import contextmanager
from operator import mul

import shoal

CLUSTER = json.loads(os.environ["SHOAL_CLUSTER_SPEC"])  # {"master": ["host:port"], "worker": [...], "ps": [...]}
ROLE, INDEX = os.environ["SHOAL_ROLE"], int(os.environ["SHOAL_INDEX"])
PARAMS = json.loads(os.environ["SHOAL_PARAMS"])
STEPS, SEED = PARAMS["steps"], PARAMS["seed"]
FEATURES = 12
PATIENCE = 120  # seconds to wait for a peer that is slow, or not there yet


def master():
    held_out = samples(1500, seed=SEED)
    rng = random.Random(SEED)
    weights = [rng.gauss(0, 0.01) for _ in range(FEATURES)]
    first = last = loss_and_gradient(weights, held_out)[0]
    print(f"step    0  loss {first:.4f}")
    server = Connection(CLUSTER["ps"][0])
    server.ask("begin", weights=weights)
    for step in range(50, STEPS + 50, 50):
        now = server.ask("weights", step=min(step, STEPS))
        last = loss_and_gradient(now["weights"], held_out)[0]
        print(f"step {now['step']:4}  loss {last:.4f}")
        shoal.log(loss=last, step=now["step"])
        shoal.progress(now["step"] / STEPS)
    server.ask("end")
    print(f"loss fell from {first:.4f} to {last:.4f}" if last < first else "loss did not fall")
    return 0 if last < first else 1


def worker():
    share = samples(1500, seed=SEED + 1 + INDEX)
    server = Connection(CLUSTER["ps"][0])
    print(f"worker {INDEX} has {len(share)} samples; the parameter server is at {CLUSTER['ps'][0]}")
    now = server.ask("weights", step=0)
    while now["step"] < STEPS:
        with shoal.step():  # the worker's own part: after it, it waits for the others
            loss, gradient = loss_and_gradient(now["weights"], share)
        shoal.log(share_loss=loss, step=now["step"])
        if now["step"] % 100 == 0:
            print(f"step {now['step']:4}  loss {loss:.4f} on my share")
        now = server.ask("gradient", step=now["step"], worker=INDEX, gradient=gradient)
    print(f"done after {now['step']} steps")
    return 0


def ps():
    state = State()

    class Peer(socketserver.StreamRequestHandler):
        def handle(self):
            with state.one_more_peer():
                for line in self.rfile:
                    message = json.loads(line)
                    answer = getattr(state, "on_" + message.pop("about"))(**message)
                    self.wfile.write(json.dumps(answer).encode() + b"\n")
            # The master was the last to hang up: nobody new is to come.
            if state.over:
                server.shutdown()

    host, port = CLUSTER["ps"][INDEX].rsplit(":", 1)
    with Server((host, int(port)), Peer) as server:
        print(f"listening on {host}:{port} for {len(CLUSTER['worker'])} workers and the master")
        server.serve_forever(poll_interval=0.05)
    print(f"done after {state.step} steps")
    return 0


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 128  # all workers knock at once


class State:
    """What the parameter server knows. Each peer has a thread; those that must wait do so on `changed`."""

    def __init__(self):
        self.weights, self.step, self.gradients, self.peers, self.over = None, -1, {}, 0, False
        self.changed = threading.Condition()

    def on_begin(self, weights):
        with self.changed:
            if self.weights is None:  # else a master that was started again: the training goes on
                self.weights, self.step = weights, 0
            self.changed.notify_all()

    def on_weights(self, step):
        with self.changed:
            if not self.changed.wait_for(lambda: self.step >= step, PATIENCE):
                raise TimeoutError(f"step {step} was not reached in {PATIENCE} seconds")
            return {"step": self.step, "weights": self.weights}

    def on_gradient(self, step, worker, gradient):
        with self.changed:
            if step == self.step:  # else a worker that was started again repeats what has been counted
                self.gradients[worker] = gradient
            if len(self.gradients) == len(CLUSTER["worker"]):
                rate = PARAMS["lr"] / len(self.gradients)
                slopes = [sum(g[i] for g in self.gradients.values()) for i in range(FEATURES)]
                self.weights = [old - rate * slopes[i] for i, old in enumerate(self.weights)]
                self.step, self.gradients = self.step + 1, {}
                self.changed.notify_all()
        return self.on_weights(step + 1)

    def on_end(self):
        # When the master has ended, Shoal stops the parameter server. So the workers hang up first: none loses its
        # last answer.
        with self.changed:
            self.over = self.changed.wait_for(lambda: self.peers == 1, PATIENCE)

    @contextmanager
    def one_more_peer(self):
        with self.changed:
            self.peers += 1
        try:
            yield
        finally:
            with self.changed:
                self.peers -= 1
                self.changed.notify_all()


class Connection:
    """A conversation with a peer, which may still be starting."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.file = socket.create_connection((host, int(port)), PATIENCE).makefile("rw")
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def ask(self, about, **message):
        self.file.write(json.dumps({"about": about, **message}) + "\n")
        self.file.flush()
        answer = self.file.readline()
        if not answer:
            raise ConnectionError("the parameter server has gone")
        return json.loads(answer)


def samples(count, seed):
    """Points, each with a 1 in front for the bias, and their classes: what a hidden line with some noise says."""
    rng = random.Random(f"hidden {SEED}")
    hidden = [rng.gauss(0, 2) for _ in range(FEATURES)]
    rng = random.Random(seed)
    points = [[1.0] + [rng.gauss(0, 1) for _ in range(FEATURES - 1)] for _ in range(count)]
    return [(x, float(rng.random() < sigmoid(sum(map(mul, hidden, x))))) for x in points]


def loss_and_gradient(weights, data):
    loss, gradient = 0.0, [0.0] * len(weights)
    for x, y in data:
        p = sigmoid(sum(map(mul, weights, x)))
        loss -= math.log(max(p if y else 1 - p, 1e-12))
        for i, value in enumerate(x):
            gradient[i] += (p - y) * value
    return loss / len(data), [slope / len(data) for slope in gradient]


def sigmoid(z):
    return 0.5 + 0.5 * math.tanh(z / 2)  # the logistic function, in the form that cannot overflow


if __name__ == "__main__":
    sys.exit({"master": master, "worker": worker, "ps": ps}[ROLE]())
