"""Regression with outliers by trimmed losses (Blondel et al. 2020)."""

from ltr.papers.regression.regression_data import RegressionDataModule
from ltr.papers.regression.regressor import Regressor

__all__ = ["RegressionDataModule", "Regressor"]
