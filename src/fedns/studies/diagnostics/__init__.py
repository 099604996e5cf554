"""How well a fitted model predicts: calibration, ROC and residuals, from groups of rows that an owner lets be counted."""
