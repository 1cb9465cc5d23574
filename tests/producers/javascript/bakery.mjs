// What runners in JavaScript share: the script's instructions, the tool, and the way to the receiver.

import { trace } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';

export const SCRIPT = JSON.parse(process.env.PRODUCER_SCRIPT);
export const VARIANT = process.env.PRODUCER_VARIANT;
export const OUTPUT = process.env.PRODUCER_OUTPUT;
export const INSTRUCTIONS = 'Answer by weighing.';

export function weigh({ what }) {
  const results = SCRIPT.results[what];
  const result = results.length > 1 ? results.shift() : results[0];
  if (result.fails) throw new Error(result.text);
  return result.text;
}

// Returns OpenTelemetry's provider, set globally, that exports spans to the receiver.
export function tracerProvider() {
  const provider = new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
  provider.register();
  return provider;
}
