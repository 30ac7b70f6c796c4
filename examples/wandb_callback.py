"""Sends a run's metrics to Weights & Biases.

After `pip install wandb`: `fedkl.train(config, "runs/x", callbacks=[WandbCallback("my-project")])`.
"""

import wandb

import fedkl


class WandbCallback(fedkl.Callback):
    def __init__(self, project):
        self.project = project

    def on_start(self, run, config):
        # The same id, so that a run that is resumed goes on in the same place.
        wandb.init(project=self.project, id=run.name, resume="allow", config=dict(config))

    def on_round(self, record):
        wandb.log(dict(record), step=record["round"])

    def on_end(self, summary):
        wandb.finish(exit_code=0 if summary else 1)
