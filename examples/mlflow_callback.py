"""Sends a run's metrics to MLflow.

After `pip install mlflow`: `fedkl.train(config, "runs/x", callbacks=[MlflowCallback()])`.
"""

import mlflow

import fedkl


class MlflowCallback(fedkl.Callback):
    def on_start(self, run, config):
        mlflow.start_run(run_name=run.name)
        tables = {name: table for name, table in config.items() if isinstance(table, dict)}
        mlflow.log_params({f"{t}.{k}": v for t, table in tables.items() for k, v in table.items()})

    def on_round(self, record):
        numbers = {k: float(v) for k, v in record.items() if isinstance(v, (int, float))}
        mlflow.log_metrics(numbers, step=record["round"])

    def on_end(self, summary):
        mlflow.end_run("FINISHED" if summary else "FAILED")
