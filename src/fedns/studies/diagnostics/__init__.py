"""Figures of predictions: calibration, ROC and residuals, from groups of rows that an owner lets be counted."""
