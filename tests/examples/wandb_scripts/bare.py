"""`init` without options, and all that a script asks of its run afterwards. Written for wandb."""

import wandb

wandb.init()
wandb.run.config.update({"lr": 0.5})
epoch = wandb.define_metric("epoch")
wandb.define_metric("val/*", step_metric=epoch)
print(wandb.run.step, wandb.run.project, wandb.run.tags, epoch.name)

wandb.log({"a": 1})
wandb.log({"a": 2, "b": 3})
wandb.log({"b": 4})
print(wandb.run.step, wandb.summary["a"], wandb.run.summary["b"])

wandb.log(data={"by name": 1.5})
wandb.log({"data": {"in a dict": 2.5}})
wandb.log({"held": 1}, step=20, commit=False)
wandb.log({"after": 2}, step=21)
for step in range(30, 35):
    wandb.log({"each": step}, step=step, commit=False)
wandb.log({"epoch": 1, "val/loss": 0.25}, step=40)

again = wandb.init(project="another")
again.log({"a": 5})
print(again is wandb.run, again.step, again.project, dict(again.config), again.summary["a"])
again.tags += ("late",)
print(wandb.run.tags)

table = wandb.Table(columns=["number", "letter"], data=[[1, "a"], [2, "b"]])
print(table.get_column("letter"), table.get_column("number", convert_to="numpy").sum())
wandb.run.summary["best"] = 0.5
wandb.finish()
print(wandb.run)
