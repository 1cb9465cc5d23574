"""The labelling page: one trace at a time, judged by keys, each label on disk before the next trace."""
