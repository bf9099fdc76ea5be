"""A plain loop: config, one call per step, a summary by hand. Written for wandb."""

import math

import wandb

run = wandb.init(
    project="curves",
    name="plain",
    group="fits",
    tags=["small", "plain"],
    notes="fits a line",
    config={"lr": 0.2, "steps": 25, "layers": [64, 32], "optimizer": {"name": "sgd", "momentum": 0.9}},
)
wandb.config.update({"seed": 7})
wandb.config.batch = 32
wandb.config["schedule"] = "constant"

weight, velocity, best = 3.0, 0.0, math.inf
for step in range(wandb.config.steps):
    gradient = 2 * (weight - 0.5)
    velocity = wandb.config.optimizer["momentum"] * velocity - wandb.config["lr"] * gradient / 10
    weight += velocity
    loss = (weight - 0.5) ** 2
    best = min(best, loss)
    wandb.log({"loss": loss, "weight": weight, "improved": loss == best})
    if step % 5 == 4:
        wandb.log({"checkpoint/loss": loss})

wandb.summary["best_loss"] = best
wandb.run.summary["verdict"] = "good"
run.summary.update({"steps_done": wandb.config.get("steps"), "half": {"weight": weight / 2}})
wandb.finish()
