//! The human-readable result, with headings at the margin and their contents indented.

use super::{Quantiles, Report, Scenario, Steady, quantiles::in_words};
use crate::{
    missing::Missing,
    output::{self, TextOutput, TextStyle},
    words::many,
};

impl output::Report for Report {
    fn show(&self, paper: &mut TextOutput) {
        let sizes = [(self.nodes, "node"), (self.services, "Service"), (self.routes, "route")];
        paper.toned(TextStyle::Title, &sizes.map(|(count, what)| many(count.into(), what)).join(", "));
        let start = "Start: adapter and controllers start; all nodes and Services already exist";
        scenario(paper, start, &self.bootstrap);
        if let Some(users) = &self.users {
            paper.heading(&format!("Services that users create during the start: {}", users.services));
            row(paper, "a call waits", &figures(&users.wait));
            row(paper, "ready after", &figures(&users.ready));
        }
        steady(paper, &self.steady);
        scenario(paper, "One node joins", &self.joins);
        advice(paper, self);
    }

    fn missing(&self) -> &[Missing] {
        &[]
    }

    /// Advice does not count as a failure, because the vendor may not allow higher limits.
    fn is_well(&self) -> bool {
        true
    }
}

fn steady(paper: &mut TextOutput, steady: &Steady) {
    paper.heading("An hour without changes");
    for family in &steady.families {
        let calls = family.calls_per_hour;
        row(paper, family.family, &format!("{calls} calls, {:.1} % of its rate", family.share * 100.0));
    }
}

fn advice(paper: &mut TextOutput, report: &Report) {
    paper.heading("Advice");
    if report.advice.is_empty() {
        paper.line("  none: no limit delays anything by more than 5 min");
    }
    for advice in &report.advice {
        paper.line(format!("  {}", advice.text));
        paper.line(format!("      {}: {}", advice.key, advice.value));
    }
    if let Some(advised) = &report.advised_bootstrap {
        let takes = time(advised.converged_seconds);
        paper.line(format!(
            "  if all advice is followed, a start takes {takes}, limited by {}",
            bound(advised)
        ));
    }
}

fn scenario(paper: &mut TextOutput, title: &str, scenario: &Scenario) {
    paper.heading(title);
    row(paper, "converged after", &time(scenario.converged_seconds));
    row(paper, "  nodes known", &time(scenario.nodes_seconds));
    row(paper, "  routes created", &time(scenario.routes_seconds));
    row(paper, "  load balancers ready", &time(scenario.load_balancers_seconds));
    row(paper, "limited by", &bound(scenario));
    for calls in &scenario.calls {
        let (reads, writes) = (many(calls.reads.into(), "read"), many(calls.writes.into(), "write"));
        row(paper, calls.family, &format!("{reads}, {writes}"));
    }
    for waits in &scenario.waits {
        row(paper, &format!("{} calls wait", waits.class), &figures(&waits.wait));
    }
}

fn row(paper: &mut TextOutput, what: &str, value: &str) {
    paper.line(format!("  {what:<23} {value}"));
}

fn time(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "more than a week".to_owned(), in_words)
}

fn bound(scenario: &Scenario) -> String {
    match &scenario.bound_by {
        None => "only the latency of the calls".to_owned(),
        Some(bound) => format!("{} ({:.0} % used)", bound.key, bound.used * 100.0),
    }
}

fn figures(Quantiles { p50_seconds, p99_seconds, max_seconds }: &Quantiles) -> String {
    let [p50, p99, max] = [p50_seconds, p99_seconds, max_seconds].map(|seconds| in_words(*seconds));
    format!("p50 {p50}, p99 {p99}, at most {max}")
}
