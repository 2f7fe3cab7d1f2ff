"""Spark as a place where jobs work: the only part of Tenure that imports pyspark, and only when it runs."""
