//! The watch after its listing: what changes, signs of life, and going on after a pause.

use std::{collections::BTreeSet, time::Duration};

use cloud_api_proto::v1alpha1::{Bookmark, WatchInstancesRequest, WatchInstancesResponse};
use tokio::time::Instant;

use crate::{
    api::{Mirror, Watch},
    check::{Stop, Verdict},
    context::Context,
    expect,
    hooks::Hook,
};

/// A Bookmark comes at least every 30 s; a busy machine has some seconds more.
const SILENCE: Duration = Duration::from_secs(35);

/// A mirror, kept as a controller keeps it.
#[derive(Debug)]
struct Follower {
    watch: Watch<WatchInstancesResponse>,
    keys: BTreeSet<String>,
    /// Whether the listing since the last Reset is complete.
    synced: bool,
    /// Since this watch began.
    resets: usize,
    token: String,
    bookmark: Option<Bookmark>,
}

impl Follower {
    /// Begins a watch, with what was known before if it goes on.
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

    /// Takes one event.
    async fn step(&mut self) -> Verdict {
        let event = self.watch.event(SILENCE).await?;
        let begun = self.resets > 0 || self.synced || matches!(event, Mirror::Reset(_));
        expect::that(begun, "a watch begins with Reset", || format!("{event:?}"))?;
        let listing = matches!(event, Mirror::Reset(_) | Mirror::Items(_) | Mirror::Synced(_));
        let wants = "items and Synced come after Reset, changes and Bookmark after Synced";
        let in_order = matches!(event, Mirror::Reset(_)) || listing != self.synced;
        expect::that(in_order, wants, || format!("{event:?}"))?;
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

    /// Follows until the mirror is complete and something holds of it.
    async fn until(&mut self, limit: Duration, wants: &str, holds: impl Fn(&Self) -> bool) -> Verdict {
        let end = Instant::now() + limit;
        while !(self.synced && holds(self)) {
            let in_time = Instant::now() < end;
            expect::that(in_time, wants, || format!("not within {} s", limit.as_secs()))?;
            self.step().await?;
        }
        Ok(())
    }

    fn has(&self, id: &str) -> bool {
        self.keys.contains(id)
    }
}

/// instance_service.proto, `WatchInstances`: Reset, items, Synced, and from then on what changes, with a Bookmark at least every 30 s. A
/// token goes on where it was given, and loses nothing; one that is none begins anew.
pub(super) async fn follows(cx: &Context) -> Verdict {
    let seen = cx.params().timings.drift;
    let mut watch = Follower::begin(cx, "", BTreeSet::new()).await?;
    watch.until(seen, "a watch is synced", |_| true).await?;
    let (token, keys) = (watch.token.clone(), watch.keys.clone());
    expect::that(!token.is_empty(), "Synced carries a token", || "an empty one".to_owned())?;
    let machines = cx.new_machines(2).await?;
    let ids: Vec<&str> = machines.iter().map(|one| one.provider_id.as_str()).collect();
    let (Some(gone), [leaves, stays]) = (machines.first(), ids.as_slice()) else {
        return Err(Stop::failed("hooks.createInstances makes as many as asked", format!("{ids:?}")));
    };
    watch.until(seen, "new instances are told", |one| one.has(leaves) && one.has(stays)).await?;
    cx.delete_machine(gone).await?;
    // Whoever shares one refresher among all watches tells it sooner.
    cx.instances().await?;
    watch.until(seen, "an instance that left is told", |one| !one.has(leaves)).await?;
    watch.bookmark = None;
    watch.until(seen, "a Bookmark comes at least every 30 s", |one| one.bookmark.is_some()).await?;
    let bookmark = watch.bookmark.clone().unwrap_or_default();
    let whole = !bookmark.token.is_empty() && bookmark.observed_at.is_some();
    expect::that(whole, "a Bookmark carries a token and when it was observed", || format!("{bookmark:?}"))?;
    drop(watch);
    let mut resumed = Follower::begin(cx, &token, keys).await?;
    let wants = "a watch that goes on after a token tells what changed since";
    resumed.until(seen, wants, |one| one.has(stays) && !one.has(leaves)).await?;
    drop(resumed);
    let strange = format!("conformance-{:x}", cx.random());
    let mut anew = Follower::begin(cx, &strange, BTreeSet::new()).await?;
    anew.step().await?;
    expect::equal("a token that is none begins with Reset", &anew.resets, &1)?;
    anew.until(seen, "a watch that begins anew is synced", |one| one.has(stays)).await
}

/// common.proto, `Synced.token`: who was away while events were lost, because the adapter was killed, is told by a Reset and a listing, or
/// by the events themselves; in no case is it silently left with what was.
pub(super) async fn lost(cx: &Context) -> Verdict {
    let seen = cx.params().timings.drift;
    let machines = cx.new_machines(2).await?;
    let [leaves, stays] = machines.as_slice() else {
        return Err(Stop::failed("hooks.createInstances makes as many as asked", format!("{machines:?}")));
    };
    let mut watch = Follower::begin(cx, "", BTreeSet::new()).await?;
    let both = |one: &Follower| one.has(&leaves.provider_id) && one.has(&stays.provider_id);
    watch.until(seen, "instances that exist are told", both).await?;
    let (token, keys) = (watch.token.clone(), watch.keys.clone());
    drop(watch);
    cx.process().kill().await?;
    cx.delete_machine(leaves).await?;
    let name = format!("conformance-{}", cx.cluster().uid("meanwhile"));
    let comes = cx.hook(Hook::CreateInstances, &[("NAME", &name), ("COUNT", "1")]).await?;
    let comes = comes.trim().to_owned();
    cx.undo_by(Hook::DeleteInstances, vec![("PROVIDER_IDS", comes.clone())]);
    cx.process().start().await?;
    let mut resumed = Follower::begin(cx, &token, keys).await?;
    let wants = "what happened while the adapter was away is told, by Reset and a listing or as events";
    let right =
        |one: &Follower| one.has(&comes) && one.has(&stays.provider_id) && !one.has(&leaves.provider_id);
    resumed.until(seen, wants, right).await
}
