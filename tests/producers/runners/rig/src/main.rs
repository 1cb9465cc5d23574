//! An agent of rig with a tool, or with a tool that runs another agent, and the spans of both.

use std::sync::{Arc, Mutex};

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::trace::SdkTracerProvider;
use rig::prelude::*;
use rig::providers::openai::OpenAI;
use rig::tool::{Tool, ToolContext};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[derive(Debug)]
struct Failure(String);

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

#[derive(Deserialize)]
struct What {
    what: String,
}

#[derive(Deserialize)]
struct Request {
    request: String,
}

type Script = Arc<Mutex<Value>>;

struct Weigh(Script);

impl Tool for Weigh {
    const NAME: &'static str = "weigh";
    type Args = What;
    type Output = String;
    type Error = Failure;

    fn description(&self) -> String {
        "Weighs a thing.".into()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]})
    }

    async fn call(&self, _context: &mut ToolContext, args: What) -> Result<String, Failure> {
        let result = self.0.lock().unwrap()["results"][&args.what].as_array_mut().unwrap().remove(0);
        let text = result["text"].as_str().unwrap().to_string();
        if result["fails"].as_bool().unwrap() { Err(Failure(text)) } else { Ok(text) }
    }
}

struct AskBaker(Script);

impl Tool for AskBaker {
    const NAME: &'static str = "ask_baker";
    type Args = Request;
    type Output = String;
    type Error = Failure;

    fn description(&self) -> String {
        "Asks the baker.".into()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object", "properties": {"request": {"type": "string"}}, "required": ["request"]})
    }

    async fn call(&self, _context: &mut ToolContext, args: Request) -> Result<String, Failure> {
        let baker = builder("baker", &self.0).tool(Weigh(self.0.clone())).build();
        let answer = baker.prompt(args.request).await.map_err(|error| Failure(error.to_string()))?;
        Ok(answer.output().to_string())
    }
}

fn builder(name: &str, script: &Script) -> AgentBuilder {
    let script = script.lock().unwrap();
    let model = OpenAI::from_env().unwrap().completion("scripted");
    AgentBuilder::new(model)
        .name(name)
        .preamble("Answer by weighing.")
        .default_max_turns(script["limit"].as_u64().unwrap_or(100) as usize)
        .record_content_telemetry(script["content"].as_bool().unwrap())
}

fn main() {
    let url = std::env::var("PRODUCER_RECEIVER_URL").unwrap() + "/v1/traces";
    let exporter = SpanExporter::builder().with_http().with_endpoint(url).build().unwrap();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("bakery"));
    tracing_subscriber::registry().with(LevelFilter::INFO).with(layer).init();
    let script: Script = Arc::new(Mutex::new(serde_json::from_str(&std::env::var("PRODUCER_SCRIPT").unwrap()).unwrap()));
    let objective = std::env::var("PRODUCER_OBJECTIVE").unwrap();
    let asks = std::env::var("PRODUCER_RUN").unwrap() == "sub_agent";
    let bakery = builder("bakery", &script);
    let bakery = if asks { bakery.tool(AskBaker(script.clone())).build() } else { bakery.tool(Weigh(script.clone())).build() };
    let answer = tokio::runtime::Runtime::new().unwrap().block_on(async { bakery.prompt(objective).await });
    if let Err(error) = answer {
        eprintln!("{error}");
    }
    provider.shutdown().unwrap();
}
