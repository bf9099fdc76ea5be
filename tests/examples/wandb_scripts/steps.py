"""Steps by hand, rows in several calls, dicts in dicts, and numbers that are none. Written for wandb."""

import wandb

settings = {"model": {"depth": 2, "width": [8, 8]}, "clip": None, "resume": False}
wandb.init(project="curves", config=settings, reinit=True)

for step in range(0, 100, 10):
    wandb.log({"train": {"loss": 1.0 / (step + 1), "rate": {"now": 0.1 * step}}}, step=step)
    wandb.log({"seen": step * 32}, step=step)

wandb.log({"part/first": 1.5}, commit=False)
wandb.log({"part/second": 2.5}, commit=False)
wandb.log({"part/first": 3.5})

wandb.log({"odd": float("nan")})
wandb.log({"odd": float("inf"), "word": "late"})
wandb.log({"odd": 4, "last": True}, step=1000, commit=True)
wandb.log({"left over": 0.25}, commit=False)

wandb.config.update({"clip": 1.0}, allow_val_change=True)
wandb.summary.update({"total": wandb.config.model["depth"] * 3})
wandb.finish()
