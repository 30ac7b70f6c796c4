"""Sends a run's metrics to MLflow.

After `pip install mlflow`: `fedkl.train(config, "runs/x", callbacks=[MlflowCallback()])`.
For several runs at a time: `fedkl.compare(..., callbacks=lambda run: [MlflowCallback()])`.
"""

import mlflow

import fedkl


class MlflowCallback(fedkl.Callback):
    def on_start(self, run, config):
        # By its id, not as the run of the process: several may go on at a time.
        experiment = mlflow.set_experiment(run.absolute().parent.name).experiment_id
        self.client = mlflow.MlflowClient()
        self.id = self.client.create_run(experiment, run_name=run.name).info.run_id
        tables = {name: table for name, table in config.items() if isinstance(table, dict)}
        settings = {f"{t}.{k}": v for t, table in tables.items() for k, v in table.items()}
        mlflow.log_params(settings, run_id=self.id)

    def on_round(self, record):
        numbers = {k: float(v) for k, v in record.items() if isinstance(v, (int, float))}
        mlflow.log_metrics(numbers, step=record["round"], run_id=self.id)

    def on_end(self, summary):
        self.client.set_terminated(self.id, "FINISHED" if summary else "FAILED")
