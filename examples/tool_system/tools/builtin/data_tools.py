"""The tools of data_analysis_set: a function, a class that implements BaseTool, and a coroutine."""

import csv
import io
import sqlite3

from mcp_hub import BaseTool, tool

SALES = "city,amount\nBern,3\nRome,5\n"


class ExcelTool(BaseTool):
    """Read the rows of the table of sales."""

    name: str = "excel_tool"

    def _run(self, limit: int = 10) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(SALES)))[:limit]


@tool
async def plot_tool(amounts: list[int]) -> str:
    """Plot amounts as bars."""
    return "\n".join("#" * amount for amount in amounts)


@tool
def sql_tool(query: str) -> list[list]:
    """Query the table `sales`."""
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE sales (city, amount)")
        rows = [(row["city"], int(row["amount"])) for row in csv.DictReader(io.StringIO(SALES))]
        database.executemany("INSERT INTO sales VALUES (?, ?)", rows)
        return database.execute(query).fetchall()
