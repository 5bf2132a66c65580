//! The human-readable result, with headings at the margin and their contents indented.

use std::fmt;

use crate::{Quantiles, Report, Scenario, scenarios::in_words};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = [(self.nodes, "node"), (self.services, "Service"), (self.routes, "route")];
        writeln!(f, "{}", sizes.map(|(count, what)| counted(count, what)).join(", "))?;
        scenario(
            f,
            "Start: adapter and controllers start; all nodes and Services already exist",
            &self.bootstrap,
        )?;
        self.users(f)?;
        self.steady(f)?;
        scenario(f, "One node joins", &self.joins)?;
        self.advice(f)
    }
}

impl Report {
    fn users(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(users) = &self.users else { return Ok(()) };
        writeln!(f, "\nServices that users create during the start: {}", users.services)?;
        row(f, "a call waits", &figures(&users.wait))?;
        row(f, "ready after", &figures(&users.ready))
    }

    fn steady(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nAn hour without changes")?;
        for family in &self.steady.families {
            let calls = family.calls_per_hour;
            row(f, family.family, &format!("{calls} calls, {:.1} % of its rate", family.share * 100.0))?;
        }
        Ok(())
    }

    fn advice(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nAdvice")?;
        if self.advice.is_empty() {
            writeln!(f, "  none: no limit delays anything by more than 5 min")?;
        }
        for advice in &self.advice {
            writeln!(f, "  {}\n      {}: {}", advice.text, advice.key, advice.value)?;
        }
        if let Some(advised) = &self.advised_bootstrap {
            let takes = time(advised.converged_seconds);
            writeln!(f, "  if all advice is followed, a start takes {takes}, limited by {}", bound(advised))?;
        }
        Ok(())
    }
}

fn scenario(f: &mut fmt::Formatter<'_>, title: &str, scenario: &Scenario) -> fmt::Result {
    writeln!(f, "\n{title}")?;
    row(f, "converged after", &time(scenario.converged_seconds))?;
    row(f, "  nodes known", &time(scenario.nodes_seconds))?;
    row(f, "  routes created", &time(scenario.routes_seconds))?;
    row(f, "  load balancers ready", &time(scenario.load_balancers_seconds))?;
    row(f, "limited by", &bound(scenario))?;
    for calls in &scenario.calls {
        let (reads, writes) = (counted(calls.reads, "read"), counted(calls.writes, "write"));
        row(f, calls.family, &format!("{reads}, {writes}"))?;
    }
    for waits in &scenario.waits {
        row(f, &format!("{} calls wait", waits.class), &figures(&waits.wait))?;
    }
    Ok(())
}

fn row(f: &mut fmt::Formatter<'_>, what: &str, value: &str) -> fmt::Result {
    writeln!(f, "  {what:<23} {value}")
}

fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
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
