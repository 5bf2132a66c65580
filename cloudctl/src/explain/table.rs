//! The human-readable report.

use jiff::Timestamp;
use telemetry::report::{Explanation, State};

use super::{ExplainReport, OfBudget};
use crate::{
    missing::Missing,
    objects::typed_name,
    output::{Cell, Report, Table, TextOutput, TextStyle},
    status::{ProcessReport, breaker},
    words::{NOTHING, age, duration, many, number, until},
};

impl Report for ExplainReport {
    fn show(&self, paper: &mut TextOutput) {
        let title = format!("{} {}", self.kind, self.key);
        for explanation in &self.explanations {
            paper.gap();
            one(self, explanation, paper);
        }
        if !self.is_known() {
            let why =
                self.unknown.as_deref().unwrap_or("none of the controllers that were read has this object");
            paper.toned(TextStyle::Bad, &format!("{title}: {why}"));
        }
        if let Some(task) = &self.task {
            paper.heading("At the adapter");
            let so_far = match task.total {
                0 => "nothing changed yet".to_owned(),
                total => format!("{} of {total} changes made", task.done),
            };
            let for_ = duration(task.since_seconds);
            paper.line(format!("  {so_far}, for {for_}; {}", task.waits_for));
        }
        if let Some(budget) = &self.budget {
            of_budget(budget, self.at, paper);
        }
        if !self.events.is_empty() {
            events(self, paper);
        }
    }

    fn names(&self) -> Vec<String> {
        let known = self.is_known().then(|| typed_name(&self.kind, &self.key));
        known.into_iter().collect()
    }

    fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// A report is good only if the object is known, does not wait, and is managed by the controllers.
    fn is_well(&self) -> bool {
        let well = |it: &Explanation| match it.state {
            State::NotLookedAt | State::Working | State::Settled => it.held,
            State::Waiting | State::NotOurs | State::Unknown => false,
        };
        self.is_known() && self.serves_nothing.is_none() && self.explanations.iter().all(|it| well(&it.page))
    }
}

fn one(
    report: &ExplainReport,
    ProcessReport { process, page }: &ProcessReport<Explanation>,
    paper: &mut TextOutput,
) {
    let now = report.at;
    let (tone, state) = match page.state {
        State::NotLookedAt if page.held => (TextStyle::Warn, "not reconciled yet"),
        State::NotLookedAt => (TextStyle::Bad, "no replica that was read holds its shard"),
        State::Working => (TextStyle::Warn, "in progress"),
        State::Waiting => (TextStyle::Bad, "waits"),
        State::Settled if report.serves_nothing.is_some() => (TextStyle::Bad, "serves nothing"),
        State::Settled => (TextStyle::Good, "in sync"),
        State::NotOurs => (TextStyle::Warn, "not managed by this controller"),
        State::Unknown => (TextStyle::Warn, "in a state that this version of cloudctl does not know"),
    };
    let since = page.since.map(|at| format!(" for {}", age(now, at))).unwrap_or_default();
    paper.toned(tone, &format!("{} {}: {state}{since}", report.kind, report.key));
    let mut table = Table::default();
    let shard = format!("{}, replica {process}, shard {}", page.controller, page.shard);
    table.row(["said by".into(), shard.into()]);
    lines(&mut table, "wanted", &page.wanted);
    lines(&mut table, "cloud has", &page.cloud);
    lines(&mut table, "plan", &plan(page));
    if let Some(words) = page.waits_for.as_ref().or(report.serves_nothing.as_ref()) {
        table.row(["because".into(), Cell::new(TextStyle::Bad, words.as_str())]);
    }
    if let Some(reason) = &page.reason {
        table.row(["reason".into(), reason.as_str().into()]);
    }
    if page.attempts > 0 {
        table.row(["tried".into(), many(page.attempts, "time").into()]);
    }
    match page.next_try {
        Some(next) => table.row(["next try".into(), format!("in {}", until(now, next)).into()]),
        // No time helps: the controller continues when the cause has changed.
        None if page.waits_for.is_some() => table.row(["next try".into(), "as soon as this changes".into()]),
        None => (),
    }
    paper.table(&table, 2);
}

/// Returns the planned actions. Only an object in sync needs none; any other object may have a plan that is not known yet.
fn plan(page: &Explanation) -> Vec<String> {
    let is_done = page.plan.is_empty() && page.state == State::Settled;
    if is_done { vec!["nothing to do".to_owned()] } else { page.plan.clone() }
}

/// Adds rows for lines under a common label.
fn lines(table: &mut Table, word: &str, lines: &[String]) {
    let none = [NOTHING.to_owned()];
    let shown = if lines.is_empty() && word != "plan" { &none } else { lines };
    for (at, line) in shown.iter().enumerate() {
        let word = if at == 0 { word } else { "" };
        table.row([word.into(), line.as_str().into()]);
    }
}

fn of_budget(budget: &OfBudget, now: Timestamp, paper: &mut TextOutput) {
    paper.heading("Budget");
    for it in &budget.queues {
        let queued = if it.queued == 1 { "call waits" } else { "calls wait" };
        let text = format!(
            "  queue of {}, {}, {}: {} {queued}, the oldest for {}",
            it.bucket,
            it.class,
            it.controller,
            it.queued,
            duration(it.oldest_seconds)
        );
        paper.line(text);
    }
    for it in &budget.budgets {
        let paused = it.paused_until.filter(|at| *at > now);
        let paused =
            paused.map(|at| format!(", paused by the vendor for {}", until(now, at))).unwrap_or_default();
        let (rate, ceiling, tokens) = (number(it.rate), number(it.ceiling), number(it.tokens));
        paper.line(format!(
            "  bucket {}: {rate}/s of {ceiling}/s, {tokens} tokens, {} queued{paused}",
            it.bucket, it.queued
        ));
    }
    for it in &budget.breakers {
        let retry = it.retry_at.map(|at| format!(", next try in {}", until(now, at))).unwrap_or_default();
        paper.line(format!("  breaker {}: {}{retry}", it.family, breaker(it.state)));
    }
    if budget.queues.is_empty() && budget.budgets.is_empty() && budget.breakers.is_empty() {
        paper.line("  no call waits for it any more");
    }
}

fn events(report: &ExplainReport, paper: &mut TextOutput) {
    paper.heading("Events");
    let mut table = Table::new(&["LAST", "TIMES", "TYPE", "REASON", "FROM", "MESSAGE"]);
    for it in &report.events {
        let tone = if it.r#type == "Warning" { TextStyle::Warn } else { TextStyle::Plain };
        let last = it.at.map_or_else(|| NOTHING.to_owned(), |at| age(report.at, at));
        table.row([
            last.into(),
            it.count.to_string().into(),
            Cell::new(tone, it.r#type.as_str()),
            it.reason.as_str().into(),
            it.from.as_str().into(),
            it.message.as_str().into(),
        ]);
    }
    paper.table(&table, 2);
}
