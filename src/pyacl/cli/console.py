"""How commands print with rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def open_console() -> Console:
    """A console for standard output. In a file or a pipe lines are not broken, so that paths stay whole."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=10_000, highlight=False)


def plain_table(*headings: str, title: str = "", right: bool = False) -> Table:
    """A table without a frame; `right` aligns the columns as numbers are."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False, title=title or None, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    return table
