"""From annotations and videos to the parquet that the recipe trains on: ``python -m data_prep --help``."""
