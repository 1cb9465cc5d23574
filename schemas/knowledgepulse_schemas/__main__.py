"""Generate the JSON Schemas from the models: ``python -m knowledgepulse_schemas``."""

from knowledgepulse_schemas.published import write

if __name__ == "__main__":
    write()
