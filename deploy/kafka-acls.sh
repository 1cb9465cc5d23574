#!/bin/sh
# Grant a principal the ACLs that one command of kp-worker needs, and no more:
#
#   export KAFKA_ACLS="kafka-acls.sh --bootstrap-server kafka:9093 --command-config admin.properties"
#   deploy/kafka-acls.sh run User:kp-worker
#
# Commands: run, topics, publish, pull (pull --publish), assemble, audit, dead-letters (list, show), replay (dead-letters replay; with
# dead-letters), evaluations, contributions, export (--policy needs those of policy, too) and policy (policy and
# traces; in addition, a topic of labels needs Read and DescribeConfigs, and topics for rescored traces need
# Write and DescribeConfigs). Write on a transactional id includes Describe. Before Kafka 2.8, run, publish and
# policy also need IdempotentWrite on the cluster, which later brokers grant with Write on any topic. Group and
# topic names must match the settings; REDACTED is not set unless topics.redacted is:
set -eu

group=${GROUP:-knowledgepulse-worker}
raw=${RAW:-raw-traces}
contribute=${CONTRIBUTE:-contribute}
rejected=${REJECTED:-rejected}
dead_letter=${DEAD_LETTER:-dead-letter}
redacted=${REDACTED:-}
evaluations=${EVALUATIONS:-otlp_logs}
evaluation_spans=${EVALUATION_SPANS:-otlp_evaluations}
changelog=$group-ledger-changelog
policies=$group-policies
replays=$group-replays
pulls=$group-pulls
spans=${SPANS:-otlp_spans}
late=${LATE:-late-spans}
assembled=$group-assembled

[ $# -eq 2 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
principal=$2

allow() {
    # shellcheck disable=SC2086  # a command with its arguments
    $KAFKA_ACLS --add --allow-principal "$principal" "$@"
}

case $1 in
run)
    allow --operation Read --operation DescribeConfigs --topic "$raw"
    allow --operation Write --operation DescribeConfigs \
        --topic "$contribute" --topic "$rejected" --topic "$dead_letter" ${redacted:+--topic "$redacted"}
    allow --operation Read --operation Write --operation DescribeConfigs \
        --topic "$changelog" --topic "$policies"
    allow --operation Read --group "$group"
    allow --operation Write --resource-pattern-type prefixed --transactional-id "$group-run-"
    ;;
topics)
    allow --operation Create --operation Describe --operation DescribeConfigs \
        --topic "$raw" --topic "$contribute" --topic "$rejected" --topic "$dead_letter" \
        ${redacted:+--topic "$redacted"} --topic "$changelog" --topic "$policies"
    allow --operation Alter --topic "$raw" --topic "$changelog"
    ;;
publish)
    allow --operation Write --topic "$raw"
    ;;
pull)
    allow --operation Write --operation DescribeConfigs --topic "$raw"
    allow --operation Read --operation DescribeConfigs --operation Write --operation Create --topic "$pulls"
    allow --operation Write --resource-pattern-type prefixed --transactional-id "$pulls-"
    ;;
assemble)
    allow --operation Read --operation DescribeConfigs --topic "$spans"
    allow --operation Write --operation DescribeConfigs --topic "$raw" --topic "$dead_letter" --topic "$late"
    allow --operation Read --operation Write --operation DescribeConfigs --topic "$assembled"
    allow --operation Read --group "$group-assemble"
    allow --operation Create --topic "$late" --topic "$assembled"
    allow --operation Write --resource-pattern-type prefixed --transactional-id "$group-assemble-"
    ;;
audit)
    allow --operation Read --operation DescribeConfigs \
        --topic "$raw" --topic "$contribute" --topic "$rejected" --topic "$dead_letter" --topic "$changelog" \
        --topic "$policies"
    allow --operation Describe --group "$group"
    ;;
dead-letters)
    allow --operation Read --operation DescribeConfigs --topic "$dead_letter" --topic "$replays"
    ;;
replay)
    allow --operation Write --operation DescribeConfigs --topic "$raw"
    allow --operation Write --operation Create --topic "$replays"
    allow --operation Write --transactional-id "$replays"
    ;;
evaluations)
    allow --operation Read --operation DescribeConfigs --topic "$contribute" --topic "$rejected"
    allow --operation Write --operation DescribeConfigs --operation Create \
        --topic "$evaluations" --topic "$evaluation_spans"
    allow --operation Read --group "$group-evaluations"
    allow --operation Write --transactional-id "$group-evaluations"
    ;;
contributions)
    allow --operation Read --operation DescribeConfigs --topic "${redacted:-$contribute}"
    allow --operation Write --operation DescribeConfigs --operation Create --topic "$group-contributions"
    allow --operation Read --group "$group-contributions"
    allow --operation Write --transactional-id "$group-contributions"
    ;;
export)
    allow --operation Read --operation DescribeConfigs --topic "${redacted:-$contribute}"
    ;;
policy)
    allow --operation Read --operation DescribeConfigs \
        --topic "$contribute" --topic "$rejected" --topic "$policies"
    ;;
*)
    echo "$1: no such command: run, topics, publish, pull, assemble, audit, dead-letters, replay, evaluations, contributions, export, policy" >&2
    exit 2
    ;;
esac
