//! The answer for people.

use std::fmt;

use crate::{Quantiles, Report, Scenario, scenarios::in_words};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, services, routes, .. } = self;
        writeln!(f, "{nodes} nodes, {services} Services, {routes} routes")?;
        scenario(
            f,
            "START: adapter and controllers start, all nodes and Services are there",
            &self.bootstrap,
        )?;
        if let Some(users) = &self.users {
            writeln!(f, "\nA USER'S SERVICE IN THE MIDDLE OF IT, {} of them", users.services)?;
            writeln!(f, "  {:<22} {}", "a call waits", figures(&users.wait))?;
            writeln!(f, "  {:<22} {}", "ready after", figures(&users.ready))?;
        }
        self.steady(f)?;
        scenario(f, "ONE NODE JOINS", &self.joins)?;
        self.advice(f)
    }
}

impl Report {
    fn steady(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nAN HOUR WITHOUT CHANGES")?;
        for family in &self.steady.families {
            let share = format!("{:.1} % of its rate", family.share * 100.0);
            writeln!(f, "  {:<22} {} calls, {share}", family.family, family.calls_per_hour)?;
        }
        Ok(())
    }

    fn advice(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nADVICE")?;
        if self.advice.is_empty() {
            writeln!(f, "  none: nobody waits long")?;
        }
        for advice in &self.advice {
            writeln!(f, "  {}\n      {}: {}", advice.text, advice.key, advice.value)?;
        }
        if let Some(advised) = &self.advised_bootstrap {
            let takes = time(advised.converged_seconds);
            writeln!(f, "  With all of this the start takes {takes}, bound by {}.", bound(advised))?;
        }
        Ok(())
    }
}

fn scenario(f: &mut fmt::Formatter<'_>, title: &str, scenario: &Scenario) -> fmt::Result {
    writeln!(f, "\n{title}")?;
    writeln!(f, "  {:<22} {}", "converged after", time(scenario.converged_seconds))?;
    writeln!(f, "  {:<22} {}", "  nodes known", time(scenario.nodes_seconds))?;
    writeln!(f, "  {:<22} {}", "  routes laid", time(scenario.routes_seconds))?;
    writeln!(f, "  {:<22} {}", "  load balancers ready", time(scenario.load_balancers_seconds))?;
    writeln!(f, "  {:<22} {}", "bound by", bound(scenario))?;
    for calls in &scenario.calls {
        writeln!(f, "  {:<22} {} reads, {} writes", calls.family, calls.reads, calls.writes)?;
    }
    for waits in &scenario.waits {
        let class = format!("{} calls wait", waits.class);
        writeln!(f, "  {class:<22} {}", figures(&waits.wait))?;
    }
    Ok(())
}

fn time(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "more than a week".to_owned(), in_words)
}

fn bound(scenario: &Scenario) -> String {
    match &scenario.bound_by {
        None => "no limit but the time that calls take".to_owned(),
        Some(bound) => format!("{} ({:.0} % used)", bound.key, bound.used * 100.0),
    }
}

fn figures(Quantiles { p50_seconds, p99_seconds, max_seconds }: &Quantiles) -> String {
    let [p50, p99, max] = [p50_seconds, p99_seconds, max_seconds].map(|seconds| in_words(*seconds));
    format!("p50 {p50}, p99 {p99}, at most {max}")
}
