//! Measures a whole adapter, which runs as a separate process against a large simulated cloud.

#![expect(clippy::disallowed_methods, reason = "the benchmark measures real time")]

mod adapter;
mod cloud;
mod requests;

use std::time::{Duration, Instant};

use adapter::Adapter;
use cloud::BenchCloud;
use test_support::bench::Row;

const INSTANCES: u32 = 10_000;
const LOAD_BALANCERS: u32 = 1_000;
/// Number of nodes behind each port of a load balancer.
const BACKENDS: u32 = 100;
/// The number of new Services while the vendor accepts no calls. Each Service needs one call.
const WAITING: u32 = 8_192;
/// Ports and nodes of the largest Service that a controller accepts, with 20,000 members.
const PORTS: u32 = 4;
const NODES: u32 = 5_000;
/// Number of references in one request, and number of requests.
const REFERENCES: u32 = 500;
const QUESTIONS: u32 = 2_000;
/// The pause before a measurement. It is longer than the work that continues after an answer.
const REST: Duration = Duration::from_millis(1);

const MEMORY: u64 = 160 * MIB;
/// The adapter's memory limit in the chart.
const LIMIT: u64 = 288 * MIB;
const ANSWER: Duration = Duration::from_millis(2);
const MIB: u64 = 1024 * 1024;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cloud = BenchCloud::start(INSTANCES).await?;
    cloud.load_balancers(LOAD_BALANCERS, 1..=BACKENDS).await?;
    let adapter = Adapter::start(&cloud.url).await?;
    let _watching = requests::watch_everything(&adapter).await?;
    let mut rows = answers(&adapter).await?;
    let idle = adapter.memory()?;
    adapter.slow_down().await?;
    requests::order_all(&adapter, WAITING, 1..=BACKENDS).await?;
    let queued = adapter.queued().await?;
    let full = adapter.memory()?;
    rows.extend(memory(idle, full, queued));
    drop(adapter);
    rows.push(largest(&cloud).await?);
    Ok(test_support::bench::print(&rows)?)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(MIB))
}

fn memory(idle: adapter::Memory, full: adapter::Memory, queued: u64) -> Vec<Row> {
    let what =
        format!("memory of an adapter, {INSTANCES} instances, {LOAD_BALANCERS} load balancers, 3 watches");
    vec![
        Row::new("P17", what.clone(), mib(idle.resident)),
        Row::new("P17", format!("{what}, {queued} calls queued"), mib(full.resident))
            .promised(format!("<= {}", mib(MEMORY)), full.resident <= MEMORY),
        Row::new("P17", format!("{what}, {queued} calls queued: peak"), mib(full.peak)),
    ]
}

async fn largest(cloud: &BenchCloud) -> anyhow::Result<Row> {
    let adapter = Adapter::start(&cloud.url).await?;
    let _watching = requests::watch_everything(&adapter).await?;
    requests::order_largest(&adapter, 1..=PORTS, 1..=NODES).await?;
    let peak = adapter.memory()?.peak;
    let what = format!(
        "memory of an adapter, {INSTANCES} instances, {LOAD_BALANCERS} load balancers, one new \
         Service of {PORTS} ports and {NODES} nodes: peak"
    );
    Ok(Row::new("P17", what, mib(peak)).promised(format!("<= {}", mib(LIMIT)), peak <= LIMIT))
}

/// Measures how long the adapter takes to answer from memory. One value is its processor time. The other value is the elapsed time, which
/// includes the client's work and other programs.
async fn answers(adapter: &Adapter) -> anyhow::Result<Vec<Row>> {
    let (mut took, mut spent) = (Vec::new(), Vec::new());
    for question in 0..QUESTIONS + QUESTIONS / 10 {
        let request = requests::references(question, REFERENCES, INSTANCES);
        let began = Instant::now();
        requests::ask(adapter, request).await?;
        took.push(began.elapsed());
    }
    let mut before = adapter.cpu()?;
    for question in 0..QUESTIONS {
        requests::ask(adapter, requests::references(question, REFERENCES, INSTANCES)).await?;
        // The kernel adds to the counted time of a thread when the thread becomes idle.
        tokio::time::sleep(REST).await;
        let after = adapter.cpu()?;
        spent.push(after.saturating_sub(before));
        before = after;
    }
    // The first requests are left out, because they open connections and fill caches.
    let (took, spent) = (Sorted::new(took.split_off(took.len() / 11)), Sorted::new(spent));
    let what = format!("answer for {REFERENCES} references from the snapshot");
    Ok(vec![
        Row::new("P19", format!("{what}, over loopback: p50"), format!("{:.2?}", took.quantile(50))),
        Row::new("P19", format!("{what}, over loopback: p99"), format!("{:.2?}", took.quantile(99))),
        Row::new(
            "P19",
            format!("{what}, the adapter's CPU time: p50"),
            format!("{:.2?}", spent.quantile(50)),
        ),
        Row::new(
            "P19",
            format!("{what}, the adapter's CPU time: p99"),
            format!("{:.2?}", spent.quantile(99)),
        )
        .promised(format!("<= {ANSWER:?}"), spent.quantile(99) <= ANSWER),
    ])
}

struct Sorted(Vec<Duration>);

impl Sorted {
    fn new(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        Self(all)
    }

    fn quantile(&self, percent: usize) -> Duration {
        self.0.get(self.0.len() * percent / 100).copied().unwrap_or_default()
    }
}
