//! A run as JSON, for programs.

use serde_json::{Value, json};

use super::{Entry, Outcome, Report};
use crate::check::{Check, Standing, Tier};

/// Formats a run as JSON.
pub fn json(report: &Report, all: &[Check]) -> Value {
    let verdicts: serde_json::Map<String, Value> = [Tier::T1, Tier::T2, Tier::T3]
        .into_iter()
        .map(|tier| (tier.to_string(), report.verdict(tier, all).to_string().into()))
        .collect();
    json!({
        "adapter": report.adapter,
        "seed": report.seed,
        "seconds": report.took.as_secs_f64(),
        "interrupted": report.interrupted,
        "left": report.left,
        "verdicts": verdicts,
        "checks": report.entries.iter().map(entry).collect::<Vec<_>>(),
    })
}

fn entry(entry: &Entry) -> Value {
    let Entry { check, repetition, lane, outcome, took, transcript, vendor_calls, unseen, left } = entry;
    let mut value = json!({
        "id": check.id,
        "name": check.name,
        "tier": check.tier.to_string(),
        "mandatory": check.standing == Standing::Mandatory,
        "section": check.section,
        "repetition": repetition,
        "lane": lane,
        "seconds": took.as_secs_f64(),
        "left": left,
    });
    let more = match outcome {
        Outcome::Passed => json!({ "outcome": "passed", "unseen": unseen }),
        Outcome::Skipped(why) => json!({ "outcome": "skipped", "why": why }),
        Outcome::Failed(finding) => json!({
            "outcome": "failed",
            "wants": finding.wants,
            "came": finding.came,
            "transcript": transcript,
            "vendorCalls": vendor_calls,
        }),
    };
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}
