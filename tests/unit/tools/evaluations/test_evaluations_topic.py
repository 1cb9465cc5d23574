"""The topic of evaluations."""

from worker.tools.evaluations.evaluations_topic import create_topic


async def test_the_topic_of_evaluations_is_created_once(brokers, admin):
    for _ in range(2):
        await create_topic(admin, "otlp_logs", 3)

    assert brokers.partitions == {"otlp_logs": 3}
