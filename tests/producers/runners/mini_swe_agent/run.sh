export MSWEA_CONFIGURED=true MSWEA_COST_TRACKING=ignore_errors MSWEA_SILENT_STARTUP=1 LITELLM_LOCAL_MODEL_COST_MAP=True
exec mini --yolo --exit-immediately --model openai/scripted --task "$PRODUCER_OBJECTIVE" --output "$PRODUCER_OUTPUT/run.traj.json" \
    --config mini.yaml --config agent.step_limit="${PRODUCER_LIMIT:-0}"
