"""Figures and the HTML report of a job. A figure is a function that returns a matplotlib Figure and opens no window.

charts        cross-validation, learning, leaderboard, reliability, trade-offs
confusion     the confusion matrix
mistakes      the wrong predictions of highest confidence
model_views   weights as images, where a model looks, decision regions
drift         how columns changed since the training
shapes        how the answer changes with one column
style         the look of all figures, and figures as files
page          the report of a job as one HTML page
figures       which figures the report shows, with their titles and texts: one function each

    from kway import report
    report.save(report.cross_validation(k, scores), "folds.svg")
"""

from kway.report.charts import cross_validation, history, leaderboard, reliability, tradeoff
from kway.report.confusion import confusion_matrix
from kway.report.mistakes import Mistake, worst_mistakes
from kway.report.model_views import projected_regions, weight_templates, where_it_looks
from kway.report.style import save, to_svg

__all__ = [
    "Mistake",
    "confusion_matrix",
    "cross_validation",
    "history",
    "leaderboard",
    "projected_regions",
    "reliability",
    "save",
    "to_svg",
    "tradeoff",
    "weight_templates",
    "where_it_looks",
    "worst_mistakes",
]
