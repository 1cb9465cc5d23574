"""Backends of traces: Phoenix, MLflow, Langfuse and LangSmith. Read runs from them, and write scores back."""
