//! The human-readable report.

use jiff::Timestamp;
use telemetry::report::Orphan;

use super::OrphansReport;
use crate::{
    missing::Missing,
    output::{Cell, Report, Table, TextOutput, TextStyle},
    words::{NOTHING, age, many, or_nothing},
};

impl Report for OrphansReport {
    fn show(&self, paper: &mut TextOutput) {
        if self.orphans.is_empty() && self.is_known() {
            paper.line("Every load balancer has its Service.");
        }
        if !self.orphans.is_empty() {
            paper.table(&table(&self.orphans, self.at), 0);
        }
        if self.more > 0 {
            paper.line(format!("{} not shown.", many(self.more, "more load balancer")));
        }
        let stale = self
            .stale
            .iter()
            .map(|(uid, key)| format!("{uid}, {key}: `cloudctl orphans --delete {uid}` removes the key"));
        paper.list("Deletion is permitted, but the load balancer no longer exists", TextStyle::Warn, stale);
        paper.list("Not known yet", TextStyle::Warn, self.gaps.iter().cloned());
    }

    fn names(&self) -> Vec<String> {
        self.orphans.iter().map(|it| it.uid.clone()).collect()
    }

    fn missing(&self) -> &[Missing] {
        &self.missing
    }

    fn is_well(&self) -> bool {
        self.orphans.is_empty() && self.stale.is_empty() && self.gaps.is_empty()
    }
}

pub(super) fn table(orphans: &[Orphan], now: Timestamp) -> Table {
    let mut table =
        Table::new(&["UID", "FORMER SERVICE", "IN THE CLOUD", "SINCE", "RELEASED", "WHY IT STAYS"]);
    for it in orphans {
        table.row([
            it.uid.as_str().into(),
            or_nothing(&it.key).into(),
            or_nothing(&it.vendor_ids.join(",")).into(),
            it.since.map_or_else(|| NOTHING.to_owned(), |at| age(now, at)).into(),
            if it.released { "yes" } else { "no" }.into(),
            Cell::if_any(TextStyle::Plain, it.waits_for.as_deref()),
        ]);
    }
    table
}
