//! Compares the controllers with the peer: the same scenario, figure by figure.

use serde::{Deserialize, Serialize};

use super::listings::of_count;
use super::result::{Row, Usage, Who, quantity};

/// A figure measured for the controllers and for the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Compared {
    pub(super) scenario: String,
    pub(super) who: Who,
    pub(super) what: String,
    pub(super) ours: String,
    pub(super) peer: String,
    /// The peer's figure divided by that of the controllers.
    pub(super) ratio: String,
}

/// All figures that one run measured for the controllers and for the peer.
pub(super) fn compared_in(rows: &[Row]) -> Vec<Compared> {
    let peers = rows.iter().filter(|row| row.who != Who::Ours);
    let ours = |peer: &Row| rows.iter().find(|row| row.who == Who::Ours && row.scenario == peer.scenario);
    peers.filter_map(|peer| Some(beside(ours(peer)?, peer))).flatten().collect()
}

/// Collects the figures that both measurements have.
pub(super) fn beside(ours: &Row, peer: &Row) -> Vec<Compared> {
    let compared = |what: &str, figures: (f64, f64), unit: &str| compared(peer, what, figures, unit);
    let mut all = vec![
        compared("time", (ours.spent.seconds, peer.spent.seconds), "s"),
        compared("vendor reads", (of_count(ours.spent.vendor.reads), of_count(peer.spent.vendor.reads)), ""),
        compared(
            "vendor writes",
            (of_count(ours.spent.vendor.writes), of_count(peer.spent.vendor.writes)),
            "",
        ),
        compared(
            "throttled calls",
            (of_count(ours.spent.vendor.throttled), of_count(peer.spent.vendor.throttled)),
            "",
        ),
        compared(
            "API-server writes",
            (of_count(ours.spent.api_total()), of_count(peer.spent.api_total())),
            "",
        ),
        compared("peak memory of all", both(ours, peer, |usage| usage.peak_mib), "MiB"),
        compared("CPU time of all", both(ours, peer, |usage| usage.cpu_seconds), "s"),
    ];
    for (what, waits) in &ours.waits {
        if let Some(theirs) = peer.waits.get(what) {
            all.push(compared(&format!("{what}, p50"), (waits.p50, theirs.p50), "s"));
            all.push(compared(&format!("{what}, p99"), (waits.p99, theirs.p99), "s"));
        }
    }
    all
}

fn both(ours: &Row, peer: &Row, of: fn(&Usage) -> f64) -> (f64, f64) {
    let sum = |row: &Row| row.spent.processes.values().map(of).sum();
    (sum(ours), sum(peer))
}

fn compared(of: &Row, what: &str, (ours, peer): (f64, f64), unit: &str) -> Compared {
    // A ratio to zero is undefined.
    let ratio = if ours > 0.0 { format!("{}x", quantity(peer / ours, "")) } else { "-".to_owned() };
    Compared {
        scenario: of.scenario.clone(),
        who: of.who,
        what: what.to_owned(),
        ours: quantity(ours, unit),
        peer: quantity(peer, unit),
        ratio,
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::{Calls, Row, Spent, Waits, Who};
    use super::{beside, compared_in};

    #[test]
    fn only_equal_scenarios_are_compared() {
        let row = |scenario: &str, who, seconds| {
            let spent = Spent { seconds, ..Spent::default() };
            Row { scenario: scenario.to_owned(), who, spent, ..Row::default() }
        };
        let rows = [
            row("steady", Who::Ours, 1.0),
            row("growth", Who::Ours, 5.0),
            row("join", Who::Ours, 2.0),
            row("join", Who::Peer, 8.0),
            row("steady", Who::PeerConcurrent, 3.0),
        ];
        let all = compared_in(&rows);
        let times: Vec<_> = all.iter().filter(|it| it.what == "time").collect();
        let told: Vec<_> = times.iter().map(|it| (it.scenario.as_str(), it.who, it.ratio.as_str())).collect();
        assert_eq!(told, [("join", Who::Peer, "4x"), ("steady", Who::PeerConcurrent, "3x")]);
    }

    #[test]
    fn figures_have_ratios_except_those_of_zero() {
        let row = |reads, p99| {
            let vendor = Calls { reads, ..Calls::default() };
            let waits = [("node initialised".to_owned(), Waits { p99, ..Waits::default() })].into();
            Row { spent: Spent { vendor, ..Spent::default() }, waits, ..Row::default() }
        };
        let all = beside(&row(4, 0.5), &row(1000, 50.0));
        let of = |what: &str| all.iter().find(|it| it.what == what).unwrap().ratio.clone();
        assert_eq!((of("vendor reads"), of("node initialised, p99")), ("250x".to_owned(), "100x".to_owned()));
        assert_eq!(of("vendor writes"), "-");
    }
}
