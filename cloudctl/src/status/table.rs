//! The human-readable report.

use telemetry::report::{AdapterStatus, BreakerState, ControllerStatus, grouped};

use super::{ProcessReport, StatusReport, age, breaker};
use crate::{
    missing::Missing,
    output::{Cell, Report, Table, TextOutput, TextStyle},
    words::{NOTHING, duration, number, or_nothing, until},
};

impl Report for StatusReport {
    fn show(&self, paper: &mut TextOutput) {
        paper.list("Not well", TextStyle::Bad, self.troubles.iter().cloned());
        under_way(self, paper);
        if !self.adapters.is_empty() {
            adapters(self, paper);
        }
        for adapter in self.adapters.iter().filter(|it| it.page.leader) {
            budgets(&adapter.page, paper);
            queues(&adapter.page, paper);
            breakers(&adapter.page, paper);
            snapshots(&adapter.page, paper);
        }
        if !self.controllers.is_empty() {
            controllers(&self.controllers, paper);
        }
        if !self.shards.is_empty() {
            shards(self, paper);
        }
        if paper.wide {
            waits(self, paper);
        }
    }

    /// The replicas of the adapter and of the controllers.
    fn names(&self) -> Vec<String> {
        let adapters = self.adapters.iter().map(|it| it.process.clone());
        adapters.chain(self.controllers.iter().map(|it| it.process.clone())).collect()
    }

    fn missing(&self) -> &[Missing] {
        &self.missing
    }

    fn is_well(&self) -> bool {
        self.troubles.is_empty()
    }
}

/// Shows how many load balancers are converging, and how many of them wait for each cause. The adapter's page lists only the oldest ones.
fn under_way(report: &StatusReport, paper: &mut TextOutput) {
    for page in report.adapters.iter().map(|it| &it.page).filter(|it| !it.tasks.is_empty()) {
        let causes: Vec<&str> = page.tasks.iter().map(|it| it.waits_for.as_str()).collect();
        let listed = u64::try_from(causes.len()).unwrap_or(u64::MAX);
        let of = if page.more_tasks == 0 { String::new() } else { format!("of the oldest {listed}, ") };
        let all = listed.saturating_add(page.more_tasks);
        paper.heading("Load balancers");
        paper.line(format!("  {all} under way: {of}{}", grouped(&causes)));
    }
}

fn adapters(report: &StatusReport, paper: &mut TextOutput) {
    paper.heading("Adapters");
    let mut table =
        Table::new(&["REPLICA", "ADAPTER", "VERSION", "ROLE", "CLUSTER", "CLOUD SCOPE", "TROUBLE"]);
    for ProcessReport { process, page } in &report.adapters {
        let role = if page.leader { Cell::new(TextStyle::Good, "leader") } else { "standby".into() };
        table.row([
            process.as_str().into(),
            or_nothing(&page.adapter).into(),
            or_nothing(&page.version).into(),
            role,
            or_nothing(&page.cluster_id).into(),
            Cell::if_any(TextStyle::Plain, page.scope.as_deref()),
            Cell::if_any(TextStyle::Bad, page.trouble.as_deref()),
        ]);
    }
    paper.table(&table, 2);
}

fn budgets(page: &AdapterStatus, paper: &mut TextOutput) {
    paper.heading("Budgets");
    let mut table =
        Table::new(&["BUCKET", "RATE", "CEILING", "TOKENS", "QUEUED", "CALLS", "THROTTLED", "PAUSED"]);
    for it in &page.budgets {
        let slowed = if it.rate < it.ceiling { TextStyle::Warn } else { TextStyle::Plain };
        let paused = it.paused_until.filter(|until| *until > page.at);
        let paused = paused.map(|at| format!("for {}", until(page.at, at)));
        let throttled = if it.throttled == 0 { TextStyle::Plain } else { TextStyle::Warn };
        table.row([
            it.bucket.as_str().into(),
            Cell::new(slowed, format!("{}/s", number(it.rate))),
            format!("{}/s", number(it.ceiling)).into(),
            number(it.tokens).into(),
            it.queued.into(),
            it.calls.into(),
            Cell::new(throttled, it.throttled.to_string()),
            Cell::if_any(TextStyle::Warn, paused.as_deref()),
        ]);
    }
    paper.table(&table, 2);
}

fn queues(page: &AdapterStatus, paper: &mut TextOutput) {
    paper.heading("Queues");
    if page.queues.is_empty() {
        return paper.line("  no call waits for a budget");
    }
    let mut table = Table::new(&["BUCKET", "CLASS", "CONTROLLER", "QUEUED", "OLDEST"]);
    for it in &page.queues {
        table.row([
            it.bucket.as_str().into(),
            it.class.as_str().into(),
            it.controller.as_str().into(),
            it.queued.into(),
            duration(it.oldest_seconds).into(),
        ]);
    }
    paper.table(&table, 2);
}

fn breakers(page: &AdapterStatus, paper: &mut TextOutput) {
    paper.heading("Breakers");
    let mut table = Table::new(&["FAMILY", "STATE", "NEXT TRY"]);
    for it in &page.breakers {
        let tone = match it.state {
            BreakerState::Closed => TextStyle::Good,
            BreakerState::HalfOpen => TextStyle::Warn,
            BreakerState::Open => TextStyle::Bad,
        };
        let retry = it.retry_at.map(|at| format!("in {}", until(page.at, at)));
        table.row([
            it.family.as_str().into(),
            Cell::new(tone, breaker(it.state)),
            Cell::if_any(TextStyle::Plain, retry.as_deref()),
        ]);
    }
    paper.table(&table, 2);
}

fn snapshots(page: &AdapterStatus, paper: &mut TextOutput) {
    paper.heading("Listings");
    let mut table = Table::new(&["COLLECTION", "ITEMS", "AGE", "TARGET", "ERROR"]);
    for it in &page.snapshots {
        let age = it.age_seconds.map_or_else(|| NOTHING.to_owned(), duration);
        table.row([
            it.collection.as_str().into(),
            it.items.into(),
            age.into(),
            duration(it.target_age_seconds).into(),
            Cell::if_any(TextStyle::Bad, it.error.as_deref()),
        ]);
    }
    paper.table(&table, 2);
}

fn controllers(all: &[ProcessReport<ControllerStatus>], paper: &mut TextOutput) {
    paper.heading("Controllers");
    let head = [
        "CONTROLLER",
        "REPLICA",
        "VERSION",
        "SHARDS",
        "WAITING",
        "RUNNING",
        "LATER",
        "OLDEST",
        "UNSETTLED",
        "ADAPTER",
    ];
    let mut table = Table::new(&head);
    for ProcessReport { process, page } in all {
        let mode = if page.dry_run { " (dry run)" } else { "" };
        let link = match (&page.adapter.trouble, &page.adapter.replica) {
            (Some(_), _) => Cell::new(TextStyle::Bad, "in trouble"),
            (None, replica) => Cell::if_any(TextStyle::Plain, replica.as_deref()),
        };
        let unsettled = if page.unsettled == 0 { TextStyle::Plain } else { TextStyle::Warn };
        table.row([
            format!("{}{mode}", page.controller).into(),
            process.as_str().into(),
            or_nothing(&page.version).into(),
            held(page).into(),
            page.queue.waiting.into(),
            page.queue.running.into(),
            page.queue.later.into(),
            duration(page.queue.oldest_seconds).into(),
            Cell::new(unsettled, page.unsettled.to_string()),
            link,
        ]);
    }
    paper.table(&table, 2);
}

/// Shows the objects that are not in sync. Each controller's page lists the objects that have waited longest.
fn waits(report: &StatusReport, paper: &mut TextOutput) {
    paper.heading("Waiting objects");
    let mut table = Table::new(&["KIND", "NAME", "FOR", "WAITS FOR"]);
    let all = report.controllers.iter().flat_map(|it| &it.page.waits);
    for it in all {
        table.row([
            it.kind.as_str().into(),
            it.key.as_str().into(),
            age(report.at, it.since).into(),
            Cell::if_any(TextStyle::Plain, it.waits_for.as_deref()),
        ]);
    }
    paper.table(&table, 2);
}

/// Formats the held shards, such as `#0,#2 of 4`.
fn held(page: &ControllerStatus) -> String {
    let held: Vec<String> = page.held.iter().map(|shard| format!("#{shard}")).collect();
    let held = if held.is_empty() { "none".to_owned() } else { held.join(",") };
    format!("{held} of {}", page.shards)
}

fn shards(report: &StatusReport, paper: &mut TextOutput) {
    paper.heading("Shards");
    let mut table = Table::new(&["CONTROLLER", "SHARD", "HOLDER", "SINCE", "RENEWED"]);
    for it in &report.shards {
        let holder = match &it.holder {
            Some(holder) => holder.as_str().into(),
            None => Cell::new(TextStyle::Bad, "none"),
        };
        table.row([
            it.controller.as_str().into(),
            u64::from(it.shard).into(),
            holder,
            age(report.at, it.since).into(),
            age(report.at, it.renewed).into(),
        ]);
    }
    paper.table(&table, 2);
}
