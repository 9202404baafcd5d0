"""Figures and the page of a job. Each figure is a function that returns a matplotlib Figure; none opens a window.

charts      cross-validation, learning, leaderboard, reliability, tradeoffs
confusion   the confusion matrix                        regions    predictions everywhere on a plane
images      weights as images, where a model looks      mistakes   the wrong rows of highest confidence
style       the look of all figures                     export     figures as files and as part of a page
page        the report of a job as one HTML page        pictures   its figures, one function each
columns     how every column was read

    from kway import report
    report.save(report.cross_validation(k, scores), "folds.svg")
"""

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {
    "Mistake": "mistakes",
    "confusion_matrix": "confusion",
    "cross_validation": "charts",
    "decision_regions": "regions",
    "history": "charts",
    "leaderboard": "charts",
    "projected_regions": "regions",
    "reliability": "charts",
    "save": "export",
    "to_data_uri": "export",
    "to_svg": "export",
    "tradeoff": "charts",
    "weight_templates": "images",
    "where_it_looks": "images",
    "worst_mistakes": "mistakes",
}
__all__ = [
    "Mistake",
    "confusion_matrix",
    "cross_validation",
    "decision_regions",
    "history",
    "leaderboard",
    "projected_regions",
    "reliability",
    "save",
    "to_data_uri",
    "to_svg",
    "tradeoff",
    "weight_templates",
    "where_it_looks",
    "worst_mistakes",
]
if TYPE_CHECKING:
    from kway.report.charts import cross_validation, history, leaderboard, reliability, tradeoff
    from kway.report.confusion import confusion_matrix
    from kway.report.export import save, to_data_uri, to_svg
    from kway.report.images import weight_templates, where_it_looks
    from kway.report.mistakes import Mistake, worst_mistakes
    from kway.report.regions import decision_regions, projected_regions

__getattr__, __dir__ = lazy_names(__name__, _HOME)
