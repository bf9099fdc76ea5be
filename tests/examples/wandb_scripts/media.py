"""A table, histograms and images beside numbers, and metrics that are defined first. Written for wandb."""

import numpy
import wandb

with wandb.init(project="curves", job_type="look", config={"classes": 3, "size": 16}) as run:
    run.define_metric("epoch")
    wandb.define_metric("val/*", step_metric="epoch")
    wandb.define_metric("loss", summary="min")
    random = numpy.random.default_rng(5)
    table = wandb.Table(columns=["sample", "label", "score"])
    for epoch in range(4):
        for number in range(3):
            run.log({"loss": 1 / (1 + epoch) + number / 10})
        scores = random.normal(size=200) + epoch
        pixels = (random.random((run.config.size, 8, 3)) * 255).astype(numpy.uint8)
        table.add_data(epoch, ["cat", "dog", "fish", None][epoch], float(scores[0]))
        run.log(
            {
                "epoch": epoch,
                "val/accuracy": numpy.float32(epoch) / 4,
                "val/scores": wandb.Histogram(scores),
                "val/few": wandb.Histogram([1, 2, 2, 5], num_bins=4),
                "sample": wandb.Image(pixels, caption=f"epoch {epoch}"),
            }
        )
    run.log({"predictions": table})
    ready = wandb.Table(data=[[1, "a"], [2, "b"]], columns=["number", "letter"])
    counted = numpy.histogram([0.5, 1.5, 1.6], bins=[0, 1, 2])
    run.log({"ready": ready, "counted": wandb.Histogram(np_histogram=counted)})
    run.summary["classes_seen"] = run.config["classes"]
