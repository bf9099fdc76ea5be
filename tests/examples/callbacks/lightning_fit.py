"""Two ranks train together with Lightning; each logs its own loss. PACKAGE chooses which of the two packages trains."""

import gc
import importlib
import os

import torch

pl = importlib.import_module(os.environ["PACKAGE"])

from shoal.integrations.lightning import ShoalLogger  # noqa: E402


class Line(pl.LightningModule):
    def __init__(self, lr: float = 0.1, width: int = 4) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)

    def training_step(self, batch, number):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss)
        self.log("mean_loss", loss, sync_dist=True)
        self.log("rank", float(self.global_rank))
        return loss

    def validation_step(self, batch, number):
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


torch.manual_seed(3)
x = torch.randn(64, 4)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
trainer = pl.Trainer(
    accelerator="cpu",
    devices=1,
    num_nodes=2,
    strategy="ddp",
    max_epochs=2,
    log_every_n_steps=1,
    logger=ShoalLogger(),
    enable_progress_bar=False,
    enable_model_summary=False,
)
loader = torch.utils.data.DataLoader(data, batch_size=8)
trainer.fit(Line(), loader, loader)
del trainer  # threads of a process group that is still held may abort the interpreter as it ends
gc.collect()
torch.distributed.destroy_process_group()
