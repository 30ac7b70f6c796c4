"""Sends a run's metrics to Weights & Biases.

After `pip install wandb`: `fedkl.train(config, "runs/x", callbacks=[WandbCallback("my-project")])`.
For several runs at a time: `fedkl.compare(..., callbacks=lambda run: [WandbCallback("mine")])`.
"""

import wandb

import fedkl


class WandbCallback(fedkl.Callback):
    def __init__(self, project):
        self.project = project

    def on_start(self, run, config):
        # The same id, so that a run that is resumed goes on in the same place.
        which = {"project": self.project, "id": "-".join(run.absolute().parts[-2:])}
        # Not the run of the process: several may go on at a time.
        self.run = wandb.init(**which, resume="allow", reinit="create_new", config=dict(config))

    def on_round(self, record):
        self.run.log(dict(record), step=record["round"])

    def on_end(self, summary):
        self.run.finish(exit_code=0 if summary else 1)
