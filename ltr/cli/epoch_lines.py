"""The progress of training: one line per epoch, and a progress bar in a terminal."""

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar


class PlainBar(RichProgressBar):
    """A progress bar without values, because the line of each epoch shows them.

    >>> PlainBar().get_metrics(Trainer(barebones=True), LightningModule())
    {}
    """

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Return no values."""
        return {}


class EpochLines(Callback):
    """Prints one line per epoch, above the progress bar if it is shown.

    Args:
        monitor: a logged value to print beside the losses.

    >>> EpochLines("val_mrr").names
    ('train_loss', 'val_loss', 'val_mrr')
    """

    def __init__(self, monitor: str = "val_ndcg_10") -> None:
        self.names = ("train_loss", "val_loss", monitor)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the values that were logged."""
        if trainer.is_global_zero:
            logged = trainer.callback_metrics
            values = [f"{name} {logged[name].item():.4f}" for name in self.names if name in logged]
            line = "  ".join([f"epoch {trainer.current_epoch + 1}", *values])
            if (bar := trainer.progress_bar_callback) is None:
                print(line, flush=True)
            else:
                bar.print(line)
