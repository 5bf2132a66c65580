//! Releases the orphans that the user selects, which permits their deletion, and waits until they are deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use telemetry::report::Orphan;
use tokio::time::{Instant, sleep};

use super::{
    OrphansArgs, OrphansReport, is_doubted, list, read_pages,
    releases::{NAME, why_not_read, write},
    table::table,
};
use crate::{
    missing::Missing,
    output::{Report, TextOutput, TextStyle, say},
    session::{Session, Usage},
};

const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The result of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// UIDs of deleted load balancers.
    pub gone: Vec<String>,
    /// Load balancers that still exist, or may still exist. They stay released.
    pub left: Vec<Orphan>,
    /// Why the state of load balancers is not known, one line for each reason.
    pub gaps: Vec<String>,
    /// Whether the user has interrupted the wait.
    pub interrupted: bool,
    /// Whether the user did not confirm. Then nothing was released.
    pub refused: bool,
    /// What could not be read or written.
    pub missing: Vec<Missing>,
}

impl Report for Outcome {
    fn show(&self, paper: &mut TextOutput) {
        for uid in &self.gone {
            paper.toned(TextStyle::Good, &format!("{uid}: deleted"));
        }
        for it in &self.left {
            let why = it.waits_for.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
            let there = if self.gaps.is_empty() { "still exists" } else { "may still exist" };
            paper.toned(TextStyle::Bad, &format!("{}, {}: {there}{why}", it.uid, it.key));
        }
        paper.list("Not known", TextStyle::Warn, self.gaps.iter().cloned());
        if self.refused {
            paper.line("Nothing was deleted.");
        }
    }

    /// The deleted load balancers.
    fn names(&self) -> Vec<String> {
        self.gone.clone()
    }

    fn missing(&self) -> &[Missing] {
        &self.missing
    }

    fn is_well(&self) -> bool {
        self.left.is_empty() && self.gaps.is_empty() && !self.refused
    }
}

/// Releases the selected load balancers, waits until they are deleted, and removes their releases. `interrupted` ends the wait early. If
/// the program is interrupted before the release, it changes nothing.
pub(crate) async fn release<F: Future<Output = ()>>(
    session: &mut Session,
    args: &OrphansArgs,
    interrupted: impl FnOnce() -> F,
) -> Result<Outcome, Usage> {
    if !args.all && args.uids.is_empty() {
        return Err(Usage("--delete: name the UIDs of the load balancers to delete, or --all".to_owned()));
    }
    if !args.yes && !io::stdin().is_terminal() {
        return Err(Usage(
            "--delete: standard input is not a terminal, so confirmation is impossible: add --yes".to_owned(),
        ));
    }
    let seen = list(session).await;
    let (chosen, mut missing) = chosen(&seen, args);
    let stale: Vec<String> =
        seen.stale.into_keys().filter(|uid| args.all || args.uids.contains(uid)).collect();
    missing.extend(seen.missing);
    if chosen.is_empty() {
        let outcome = Outcome { gone: stale, missing, gaps: seen.gaps, ..Outcome::default() };
        return Ok(withdraw(session, outcome).await);
    }
    if let Some(why) = why_not_read(session).await {
        missing.push(why);
        return Ok(Outcome { missing, refused: true, ..Outcome::default() });
    }
    let mut paper = TextOutput::new(false);
    paper.table(&table(&chosen, session.now), 0);
    say(paper.text().trim_end());
    if !args.yes && !agreed(chosen.len()) {
        return Ok(Outcome { refused: true, missing, ..Outcome::default() });
    }
    let interrupted = interrupted();
    let keys: BTreeMap<&str, Value> = chosen.iter().map(|it| (it.uid.as_str(), json!(it.key))).collect();
    let named = match &session.cluster {
        Some(cluster) => write(cluster, &session.release.namespace, &json!(keys)).await,
        // The missing connection has already been reported.
        None => return Ok(Outcome { left: chosen, missing, ..Outcome::default() }),
    };
    if let Err(why) = named {
        missing.push(why);
        return Ok(Outcome { left: chosen, missing, ..Outcome::default() });
    }
    say(&format!(
        "ConfigMap {}/{NAME} now permits the deletion; service-controller deletes the load balancers.",
        session.release.namespace
    ));
    let mut outcome = Outcome { left: chosen.clone(), ..Outcome::default() };
    outcome.interrupted = tokio::select! {
        () = gone(session, &chosen, args.timeout, &mut outcome) => false,
        () = interrupted => true,
    };
    outcome.gone.extend(stale);
    outcome.missing.extend(missing);
    Ok(withdraw(session, outcome).await)
}

/// Returns the selected orphans that can be released, and the selected UIDs that cannot.
fn chosen(seen: &OrphansReport, args: &OrphansArgs) -> (Vec<Orphan>, Vec<Missing>) {
    if args.all {
        let (doubted, known): (Vec<Orphan>, Vec<Orphan>) = seen.orphans.iter().cloned().partition(is_doubted);
        return (known, doubted.iter().map(|it| doubt(&it.uid)).collect());
    }
    let wanted: BTreeSet<&String> = args.uids.iter().collect();
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for uid in wanted {
        match seen.orphans.iter().find(|it| it.uid == *uid) {
            Some(orphan) if is_doubted(orphan) => missing.push(doubt(uid)),
            Some(orphan) => found.push(orphan.clone()),
            // The load balancer was released earlier and is deleted by now.
            None if seen.stale.contains_key(uid) => (),
            None => {
                let why = "service-controller reports no orphan with this UID";
                missing.push(Missing::new(format!("UID {uid}"), why));
            }
        }
    }
    (found, missing)
}

fn doubt(uid: &str) -> Missing {
    Missing::new(format!("UID {uid}"), "its Service may still appear: try again in a minute")
}

/// Asks the user for confirmation.
fn agreed(number: usize) -> bool {
    let what =
        if number == 1 { "this load balancer".to_owned() } else { format!("these {number} load balancers") };
    let mut out = io::stderr();
    let asked =
        out.write_all(format!("Delete {what} in the cloud? [y/N] ").as_bytes()).and_then(|()| out.flush());
    let mut answer = String::new();
    asked.is_ok()
        && io::stdin().lock().read_line(&mut answer).is_ok()
        && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

/// Reads the pages until all load balancers are deleted, or until the time limit has passed. Stores the result of each read in `outcome`.
async fn gone(session: &mut Session, chosen: &[Orphan], limit: Duration, outcome: &mut Outcome) {
    let end = Instant::now() + limit;
    let (mut before, mut unseen) = (chosen.len(), BTreeSet::new());
    loop {
        // Pages that could not be read earlier may be readable now.
        session.missing.clear();
        let seen = read_pages(session).await;
        *outcome = judged(chosen, &seen, &mut unseen);
        if outcome.left.len() < before {
            before = outcome.left.len();
            say(&format!("{} of {} are deleted", outcome.gone.len(), chosen.len()));
        }
        if outcome.left.is_empty() || Instant::now() + POLL_INTERVAL >= end {
            return;
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Splits the load balancers into deleted ones and remaining ones. A load balancer counts as deleted if it is absent from two consecutive
/// successful reads. `unseen` contains the load balancers that were absent from the last read.
fn judged(chosen: &[Orphan], seen: &OrphansReport, unseen: &mut BTreeSet<String>) -> Outcome {
    if !seen.is_known() {
        unseen.clear();
        let (missing, gaps) = (seen.missing.clone(), seen.gaps.clone());
        return Outcome { left: chosen.to_vec(), missing, gaps, ..Outcome::default() };
    }
    let mut outcome = Outcome::default();
    let before = std::mem::take(unseen);
    for it in chosen {
        match seen.orphans.iter().find(|seen| seen.uid == it.uid) {
            Some(still) => outcome.left.push(still.clone()),
            None => {
                unseen.insert(it.uid.clone());
                if before.contains(&it.uid) {
                    outcome.gone.push(it.uid.clone());
                } else {
                    let waits_for = Some("it was absent from only one read so far".to_owned());
                    outcome.left.push(Orphan { waits_for, ..it.clone() });
                }
            }
        }
    }
    outcome
}

/// Removes the releases of deleted load balancers from the ConfigMap, and reports which releases remain in it.
async fn withdraw(session: &Session, mut outcome: Outcome) -> Outcome {
    if let (Some(cluster), false) = (&session.cluster, outcome.gone.is_empty()) {
        let keys: BTreeMap<&str, Value> =
            outcome.gone.iter().map(|uid| (uid.as_str(), Value::Null)).collect();
        outcome.missing.extend(write(cluster, &session.release.namespace, &json!(keys)).await.err());
    }
    if !outcome.left.is_empty() {
        let map = format!("ConfigMap {}/{NAME}", session.release.namespace);
        say(&format!(
            "{map} still permits deletions ({}): service-controller will delete these load balancers as soon as possible; \
            to keep them, remove their keys",
            outcome.left.len()
        ));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn orphan(uid: &str) -> Orphan {
        let since = Some(Timestamp::UNIX_EPOCH);
        Orphan { uid: uid.to_owned(), key: format!("default/{uid}"), since, ..Orphan::default() }
    }

    fn seen(uids: &[&str]) -> OrphansReport {
        OrphansReport { orphans: uids.iter().map(|it| orphan(it)).collect(), ..OrphansReport::default() }
    }

    fn args(uids: &[&str], all: bool) -> OrphansArgs {
        let uids = uids.iter().map(|it| (*it).to_owned()).collect();
        OrphansArgs { delete: true, uids, all, yes: true, timeout: Duration::ZERO }
    }

    #[test]
    fn only_named_existing_orphans_are_chosen() {
        let (found, missing) = chosen(&seen(&["a", "b"]), &args(&["b", "c", "b"], false));
        assert_eq!(found, [orphan("b")]);
        assert!(matches!(missing.as_slice(), [one] if one.source == "UID c"), "{missing:?}");
        assert_eq!(chosen(&seen(&["a", "b"]), &args(&[], true)).0, [orphan("a"), orphan("b")]);
    }

    #[test]
    fn a_deleted_released_orphan_is_not_missing() {
        let stale = [("b".to_owned(), "default/b".to_owned())].into();
        let seen = OrphansReport { stale, ..seen(&["a"]) };
        assert_eq!(chosen(&seen, &args(&["b"], false)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn an_orphan_that_may_get_its_service_is_not_chosen() {
        let mut seen = seen(&["a", "b"]);
        seen.orphans.iter_mut().filter(|it| it.uid == "a").for_each(|it| it.since = None);
        for args in [args(&["a", "b"], false), args(&[], true)] {
            let (found, missing) = chosen(&seen, &args);
            assert_eq!(found, [orphan("b")]);
            assert_eq!(missing, [doubt("a")]);
        }
    }

    #[test]
    fn an_unreadable_orphan_does_not_count_as_deleted() {
        let (both, mut unseen) = ([orphan("a"), orphan("b")], BTreeSet::new());
        assert_eq!(
            judged(&both, &seen(&["a"]), &mut unseen).gone,
            [""; 0],
            "absent from only one read so far"
        );
        let one = judged(&both, &seen(&["a"]), &mut unseen);
        assert_eq!((one.gone, one.left), (vec!["b".to_owned()], vec![orphan("a")]));
        let unread = OrphansReport { missing: vec![Missing::new("pod", "away")], ..seen(&[]) };
        assert_eq!(judged(&both, &unread, &mut unseen).left, both);
        let unheld = OrphansReport { gaps: vec!["no replica holds the shard".to_owned()], ..seen(&[]) };
        for _read in 0..3 {
            let outcome = judged(&both, &unheld, &mut unseen);
            assert_eq!((&outcome.gone[..], &outcome.left[..]), (&[][..], &both[..]));
            assert!(!outcome.is_well());
        }
        assert_eq!(judged(&both, &seen(&[]), &mut unseen).gone, [""; 0], "incomplete reads do not count");
    }
}
