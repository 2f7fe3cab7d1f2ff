"""Figures: percentiles, medians, and how they are shown. Pure."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

__all__ = ["combine", "median_of", "percentile", "rounded", "shown"]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, min(len(ordered) - 1, int(rank) - 1))]


def median_of(tries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each figure's median over tries; with more than one, all values stand beside it. Exact only if each was."""
    first = tries[0]
    if len(tries) == 1:
        return dict(first)
    result: dict[str, Any] = {}
    for name, figure in first.items():
        values = [one[name] for one in tries]
        if isinstance(figure, bool):
            result[name] = all(values)
        elif isinstance(figure, int | float):
            result[name] = median(values)
            result[f"{name}_all"] = [rounded(value) for value in values]
        else:
            result[name] = figure
    return result


def combine(results: dict[str, Any], figures: Mapping[str, Any]) -> None:
    """Add a measurement's figures to those of all."""
    exact = results.get("exact", True) and figures.get("exact", True)
    results.update({name: rounded(figure) for name, figure in figures.items()})
    results["exact"] = exact


def rounded(figure: Any) -> Any:
    """To the digits that mean something."""
    if isinstance(figure, list):
        return [rounded(one) for one in figure]
    if isinstance(figure, float):
        return round(figure) if abs(figure) >= 1000 else float(f"{figure:.4g}")
    return figure


def shown(figures: Mapping[str, Any]) -> str:
    """For people."""
    return ", ".join(f"{name} {_shown(rounded(figure))}" for name, figure in figures.items())


def _shown(figure: Any) -> str:
    if isinstance(figure, bool):
        return "yes" if figure else "NO"
    if isinstance(figure, list):
        return "/".join(map(_shown, figure))
    return f"{figure:,}" if isinstance(figure, int | float) else str(figure)
