//! Verifies a watch after its listing: changes, bookmarks, and resuming.

use std::{collections::BTreeSet, time::Duration};

use cloud_api_proto::v1alpha1::{Bookmark, WatchInstancesRequest, WatchInstancesResponse};
use tokio::time::Instant;

use crate::checks::prelude::*;

/// Maximum interval between Bookmarks: 30 s in the contract, plus tolerance for a busy host.
const BOOKMARK_INTERVAL_MAX: Duration = Duration::from_secs(35);

/// The state of a watch, updated in the same way as in a controller.
#[derive(Debug)]
struct Follower {
    watch: Watch<WatchInstancesResponse>,
    keys: BTreeSet<String>,
    /// Whether the listing since the last Reset is complete.
    synced: bool,
    resets: usize,
    token: String,
    bookmark: Option<Bookmark>,
}

impl Follower {
    /// Begins a watch. With a token, resumes an earlier watch whose items were `keys`.
    async fn begin(cx: &Context, token: &str, keys: BTreeSet<String>) -> Result<Self, Stop> {
        let request = WatchInstancesRequest {
            context: Some(cx.cluster().context()),
            resume_token: token.to_owned(),
            ..WatchInstancesRequest::default()
        };
        let watch = cx.node()?.watch_instances(request).await?;
        let synced = !token.is_empty();
        Ok(Self { watch, keys, synced, resets: 0, token: token.to_owned(), bookmark: None })
    }

    async fn step(&mut self) -> Verdict {
        let event = self.watch.event(BOOKMARK_INTERVAL_MAX).await?;
        let begun = self.resets > 0 || self.synced || matches!(event, Mirror::Reset(_));
        expect::shown(begun, "a watch begins with Reset", &event)?;
        let listing = matches!(event, Mirror::Reset(_) | Mirror::Items(_) | Mirror::Synced(_));
        let wants = "items and Synced come after Reset, changes and Bookmark after Synced";
        let in_order = matches!(event, Mirror::Reset(_)) || listing != self.synced;
        expect::shown(in_order, wants, &event)?;
        match event {
            Mirror::Reset(_) => {
                self.keys.clear();
                self.synced = false;
                self.resets = self.resets.saturating_add(1);
            }
            Mirror::Items(items) => self.keys.extend(items.into_iter().map(|item| item.provider_id)),
            Mirror::Synced(synced) => {
                let count = u64::try_from(self.keys.len()).unwrap_or(u64::MAX);
                expect::equal("`count` is the number of items since Reset", &synced.count, &count)?;
                self.synced = true;
                self.token = synced.token;
            }
            Mirror::Upsert(item) => drop(self.keys.insert(item.provider_id)),
            Mirror::Gone { key, .. } => drop(self.keys.remove(&key)),
            Mirror::Bookmark(bookmark) => {
                self.token = bookmark.token.clone();
                self.bookmark = Some(bookmark);
            }
            Mirror::Unknown => {
                return Err(Stop::failed("each message is an event of the contract", "none"));
            }
        }
        Ok(())
    }

    /// Reads events until the listing is complete and the condition holds.
    async fn until(&mut self, limit: Duration, wants: &str, holds: impl Fn(&Self) -> bool) -> Verdict {
        let end = Instant::now() + limit;
        while !(self.synced && holds(self)) {
            let in_time = Instant::now() < end;
            expect::that(in_time, wants, || {
                format!("the condition did not hold within {} s", limit.as_secs())
            })?;
            self.step().await?;
        }
        Ok(())
    }

    fn has(&self, id: &str) -> bool {
        self.keys.contains(id)
    }
}

/// instance_service.proto, `WatchInstances`: a watch sends Reset, items and Synced, and then changes, with a Bookmark at least every 30 s.
/// With a token, a watch resumes at the event with which the token was issued, and loses no event. With an invalid token, a watch begins
/// with a new listing.
pub(super) async fn follows(cx: &Context) -> Verdict {
    let seen = cx.params().timings.drift;
    let mut watch = Follower::begin(cx, "", BTreeSet::new()).await?;
    watch.until(seen, "a watch is synced", |_| true).await?;
    let (token, keys) = (watch.token.clone(), watch.keys.clone());
    expect::that(!token.is_empty(), "Synced has a token", || "the token is empty".to_owned())?;
    let [gone, stays] = &cx.these_new_machines().await?;
    let (leaves, stays) = (&gone.provider_id, &stays.provider_id);
    watch.until(seen, "new instances are reported", |one| one.has(leaves) && one.has(stays)).await?;
    cx.delete_machine(gone).await?;
    // This live listing may let the adapter report the deletion sooner.
    cx.instances().await?;
    watch.until(seen, "a deleted instance is reported", |one| !one.has(leaves)).await?;
    watch.bookmark = None;
    watch.until(seen, "a Bookmark comes at least every 30 s", |one| one.bookmark.is_some()).await?;
    let bookmark = watch.bookmark.clone().unwrap_or_default();
    let whole = !bookmark.token.is_empty() && bookmark.observed_at.is_some();
    expect::shown(whole, "a Bookmark has a token and observed_at", &bookmark)?;
    drop(watch);
    let mut resumed = Follower::begin(cx, &token, keys).await?;
    let wants = "a resumed watch reports what changed since";
    resumed.until(seen, wants, |one| one.has(stays) && !one.has(leaves)).await?;
    drop(resumed);
    let strange = format!("conformance-{:x}", cx.random());
    let mut renewed = Follower::begin(cx, &strange, BTreeSet::new()).await?;
    renewed.step().await?;
    expect::equal("a watch with an invalid token begins with Reset", &renewed.resets, &1)?;
    renewed.until(seen, "a watch that begins with a new listing is synced", |one| one.has(stays)).await
}

/// common.proto, `Synced.token`: a watcher may miss events because the adapter was killed. It then gets a Reset and a listing, or the
/// missed events. The watcher's state must not stay outdated.
pub(super) async fn lost(cx: &Context) -> Verdict {
    let seen = cx.params().timings.drift;
    let [leaves, stays] = &cx.these_new_machines().await?;
    let mut watch = Follower::begin(cx, "", BTreeSet::new()).await?;
    let both = |one: &Follower| one.has(&leaves.provider_id) && one.has(&stays.provider_id);
    watch.until(seen, "existing instances are reported", both).await?;
    let (token, keys) = (watch.token.clone(), watch.keys.clone());
    drop(watch);
    cx.process().kill().await?;
    cx.delete_machine(leaves).await?;
    let name = format!("conformance-{}", cx.cluster().uid("downtime"));
    let comes = cx.hook(Hook::CreateInstances, &[("NAME", &name), ("COUNT", "1")]).await?;
    let comes = comes.trim().to_owned();
    cx.undo_by(Hook::DeleteInstances, vec![("PROVIDER_IDS", comes.clone())]);
    cx.process().start().await?;
    let mut resumed = Follower::begin(cx, &token, keys).await?;
    let wants =
        "changes during the downtime of the adapter are reported, by Reset and a listing or as events";
    let right =
        |one: &Follower| one.has(&comes) && one.has(&stays.provider_id) && !one.has(&leaves.provider_id);
    resumed.until(seen, wants, right).await
}
