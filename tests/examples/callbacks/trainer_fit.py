"""Two ranks of the Trainer of transformers, with a model that is made here."""

import gc
import os

import torch
import transformers

from shoal.integrations.transformers import ShoalCallback


class Settings(transformers.PretrainedConfig):
    model_type = "tiny-line"

    def __init__(self, width: int = 4, **others) -> None:
        super().__init__(**others)
        self.width = width


class Line(transformers.PreTrainedModel):
    config_class = Settings

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.layer = torch.nn.Linear(config.width, 1)
        self.post_init()

    def forward(self, x, labels):
        guess = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(guess, labels), "logits": guess}


def close(told) -> dict:
    return {"close": float((abs(told.predictions - told.label_ids) < 0.5).mean())}


torch.manual_seed(3)
data = [{"x": x, "labels": x.sum()[None]} for x in torch.randn(64, 4)]
arguments = transformers.TrainingArguments(
    output_dir=os.path.join(os.environ["SHOAL_OUTPUTS"], "trained"),
    per_device_train_batch_size=4,
    learning_rate=0.1,
    max_steps=12,
    logging_steps=3,
    eval_strategy="steps",
    eval_steps=6,
    save_steps=6,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
trainer = transformers.Trainer(
    model=Line(Settings()),
    args=arguments,
    train_dataset=data,
    eval_dataset=data[:16],
    compute_metrics=close,
    callbacks=[ShoalCallback()],
)
trainer.train()
del trainer  # threads of a process group that is still held may abort the interpreter as it ends
gc.collect()
torch.distributed.destroy_process_group()
