//! The human-readable report.

use std::collections::BTreeSet;

use super::{
    AdoptReport, Change,
    former::{LEASES, NODES, PODS, SERVICES},
};
use crate::{
    missing::Missing,
    objects::typed_name,
    output::{Cell, Report, Table, TextOutput, TextStyle},
    words::{NOTHING, age, first_of, many, named},
};

impl Report for AdoptReport {
    fn show(&self, paper: &mut TextOutput) {
        if self.nothing_to_adopt {
            return paper.toned(
                TextStyle::Good,
                "There is nothing to adopt: these controllers already run. `adopt` is for a dry run (dryRun=true) before that.",
            );
        }
        former(self, paper);
        if !self.changes.is_empty() {
            changes("What would change", &self.changes, paper);
        }
        if !self.additions.is_empty() {
            changes("What would be added in the cluster", &self.additions, paper);
        }
        paper.gap();
        if self.safe {
            let marks = many(self.marks, "mark");
            paper.toned(
                TextStyle::Good,
                &format!("Safe: taking over sets {marks} in the cloud and changes nothing else there."),
            );
            paper.line(
                "Stop the other cloud controller manager, then `helm upgrade` with --set dryRun=false.",
            );
        } else {
            paper.toned(TextStyle::Bad, "Not known to be safe:");
            for doubt in &self.doubts {
                paper.line(format!("  {doubt}"));
            }
        }
    }

    /// The objects that a takeover would change.
    fn names(&self) -> Vec<String> {
        let all = self.changes.iter().chain(&self.additions);
        let names: BTreeSet<String> = all.map(|it| typed_name(&it.kind, &it.key)).collect();
        names.into_iter().collect()
    }

    fn missing(&self) -> &[Missing] {
        &self.missing
    }

    fn is_well(&self) -> bool {
        self.safe || self.nothing_to_adopt
    }
}

fn former(report: &AdoptReport, paper: &mut TextOutput) {
    let former = &report.former;
    paper.heading("Another cloud controller manager");
    let mut table = Table::default();
    let unread = |what: &str| {
        let why = former.unread.get(what).map(|why| format!("not read: {why}"));
        why.map(|why| Cell::new(TextStyle::Bad, why))
    };
    let lease = match &former.lease {
        None => Cell::new(TextStyle::Dim, "no Lease kube-system/cloud-controller-manager"),
        Some(lease) => {
            let renewed = lease.renewed.map_or_else(|| NOTHING.to_owned(), |at| age(report.at, at));
            let (tone, runs) =
                if lease.running { (TextStyle::Warn, "runs") } else { (TextStyle::Plain, "does not run") };
            let holder = if lease.holder.is_empty() { "no process" } else { &lease.holder };
            Cell::new(tone, format!("{runs}: held by {holder}, renewed {renewed} ago"))
        }
    };
    table.row(["Lease".into(), unread(LEASES).unwrap_or(lease)]);
    let named = |names: &[String]| match names {
        [] => Cell::new(TextStyle::Dim, "none"),
        names if paper.wide => first_of(names, usize::MAX).into(),
        names => named(names).into(),
    };
    table.row(["pods".into(), unread(PODS).unwrap_or_else(|| named(&former.pods))]);
    table.row([
        "Services with a load balancer".into(),
        unread(SERVICES).unwrap_or_else(|| named(&former.services)),
    ]);
    table.row(["uninitialised nodes".into(), unread(NODES).unwrap_or_else(|| named(&former.uninitialised))]);
    paper.table(&table, 2);
}

fn changes(title: &str, all: &[Change], paper: &mut TextOutput) {
    paper.heading(title);
    let mut table = Table::new(&["OBJECT", "CONTROLLER", "CHANGE", "OPERATION"]);
    for it in all {
        table.row([
            format!("{} {}", it.kind, it.key).into(),
            it.controller.as_str().into(),
            it.what.as_str().into(),
            Cell::if_any(TextStyle::Plain, it.operation.as_deref()),
        ]);
    }
    paper.table(&table, 2);
}
