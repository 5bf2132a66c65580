//! The human-readable report.

use super::{PlanReport, Planned, Price};
use crate::{
    missing::Missing,
    objects::typed_name,
    output::{Cell, Report, Table, TextOutput, TextStyle},
    words::{NOTHING, duration, many, number, or_nothing},
};

impl Report for PlanReport {
    fn show(&self, paper: &mut TextOutput) {
        objects(&self.objects, paper);
        if self.objects.is_empty() && !self.planners.is_empty() && self.is_complete() {
            paper.line("No changes are planned.");
        }
        if !self.price.is_empty() {
            price(self, paper);
        }
        incomplete(self, paper);
    }

    fn names(&self) -> Vec<String> {
        let objects = self.objects.iter();
        let mut names: Vec<String> = objects.map(|it| typed_name(&it.what.kind, &it.what.key)).collect();
        names.dedup();
        names
    }

    fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Pending work is not a failure, but unknown or incomplete plans are failures.
    fn is_well(&self) -> bool {
        self.is_complete() && self.objects.iter().all(|it| it.what.trouble.is_none())
    }
}

/// Prints one block per object, with the plans of all controllers.
fn objects(all: &[Planned], paper: &mut TextOutput) {
    for block in all.chunk_by(|a, b| (&a.what.kind, &a.what.key) == (&b.what.kind, &b.what.key)) {
        let Some(Planned { what, .. }) = block.first() else { continue };
        paper.heading(&format!("{} {}", what.kind, what.key));
        let mut table = Table::default();
        for planned in block {
            rows(planned, &mut table);
        }
        paper.table(&table, 2);
    }
}

fn rows(Planned { controller, what }: &Planned, table: &mut Table) {
    let mut row = |word: &str, cell: Cell| table.row([controller.as_str().into(), word.into(), cell]);
    for line in &what.cluster {
        row("cluster", line.as_str().into());
    }
    for step in &what.vendor {
        let (operation, family) = (or_nothing(&step.operation), or_nothing(&step.family));
        row("cloud", format!("{} ({operation}, {family})", step.description).into());
    }
    if let Some(trouble) = &what.trouble {
        let reason = what.reason.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
        row("because", Cell::new(TextStyle::Bad, format!("{trouble}{reason}")));
    }
}

fn price(report: &PlanReport, paper: &mut TextOutput) {
    paper.heading("Price");
    let mut table = Table::new(&["FAMILY", "CALLS", "RATE", "AT LEAST"]);
    for Price { family, calls, rate, at_least_seconds } in &report.price {
        let rate = rate.map_or_else(|| NOTHING.to_owned(), |rate| format!("{}/s", number(rate)));
        table.row([
            or_nothing(family).into(),
            (*calls).into(),
            rate.into(),
            at_least_seconds.map_or_else(|| NOTHING.to_owned(), at_least).into(),
        ]);
    }
    paper.table(&table, 2);
    let calls = report.price.iter().map(|it| it.calls).sum();
    let time = match report.at_least_seconds {
        Some(seconds) => format!("which takes at least {} at the current rates", at_least(seconds)),
        None => "for an unknown time".to_owned(),
    };
    paper.line(format!("  {} change the cloud, {time}; reads are not included.", many(calls, "call")));
}

/// Formats the time of calls. It is never zero, because every call takes some time.
fn at_least(seconds: f64) -> String {
    if seconds < 1.0 { "<1s".to_owned() } else { duration(seconds) }
}

/// Lists the gaps, and the replicas that have not reconciled all objects yet.
fn incomplete(report: &PlanReport, paper: &mut TextOutput) {
    let lacking = report.planners.iter().filter(|it| !it.is_complete());
    let lacking = lacking.map(|it| {
        format!(
            "{} {}: has reconciled {} of {} objects so far",
            it.controller, it.process, it.looked_at, it.of
        )
    });
    paper.list("Not complete yet", TextStyle::Warn, report.gaps.iter().cloned().chain(lacking));
}
