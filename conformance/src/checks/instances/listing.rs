//! Verifies the listing at the beginning of a watch.

use std::{collections::BTreeSet, time::Duration};

use cloud_api_proto::v1alpha1::{
    Instance, Scope, Synced, WatchInstancesRequest, WatchInstancesResponse, watch_instances_response::Event,
};
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::ask::{not_before, wall};
use crate::checks::prelude::*;

/// The maximum number of items in one message. Source: common.proto, the rules for every message.
const ITEMS_MAX: usize = 512;
/// The maximum size of one message in bytes. Source: the same rules.
const BYTES_MAX: usize = 1024 * 1024;
const TIMEOUT: Duration = Duration::from_secs(30);

/// The result of a watch that stops when synced. All its messages were verified.
#[derive(Debug, Default)]
pub(super) struct Strict {
    scope: Option<Scope>,
    pub(super) items: Vec<Instance>,
    synced: Option<Synced>,
}

/// common.proto, `Synced`: a listing begins with Reset and ends with Synced. The count and checksum in Synced match the items. A watch that
/// stops when synced ends after that.
pub(super) async fn closed(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let asked = wall();
    let Strict { scope, items, synced } = strictly(cx).await?;
    let fingerprint = scope.map(|scope| scope.fingerprint);
    let known = cx.info().scope.as_ref().map(|scope| scope.fingerprint.clone());
    expect::equal("the Scope in Reset is that of GetInfo", &fingerprint, &known)?;
    let synced = expect::some(synced, "a listing ends with Synced")?;
    expect::shown(!synced.token.is_empty(), "Synced has a token", &synced)?;
    not_before("`observed_at` of a live listing is after the request", synced.observed_at, asked)?;
    holds_all(&items, &machines)
}

/// Asserts that count and checksum of a listing match its items.
fn sums(items: &[Instance], synced: &Synced) -> Verdict {
    let keys: BTreeSet<&str> = items.iter().map(|item| item.provider_id.as_str()).collect();
    expect::equal("an instance is listed once", &keys.len(), &items.len())?;
    let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
    expect::equal("`count` is the number of items since Reset", &synced.count, &count)?;
    let sum = keys.iter().fold(0_u64, |sum, key| {
        let digest = Sha256::digest(key);
        sum.wrapping_add(digest.iter().take(8).fold(0, |part, &byte| (part << 8) | u64::from(byte)))
    });
    let wants =
        "`checksum` is the sum of the first eight bytes (big endian) of the SHA-256 of each provider_id";
    expect::equal(wants, &synced.checksum, &sum)
}

pub(super) fn holds_all(items: &[Instance], machines: &[Instance]) -> Verdict {
    let keys: BTreeSet<&str> = items.iter().map(|item| item.provider_id.as_str()).collect();
    let lost: Vec<&str> =
        machines.iter().map(|one| one.provider_id.as_str()).filter(|id| !keys.contains(id)).collect();
    expect::that(lost.is_empty(), "an instance that exists during the whole listing is listed", || {
        format!("{} of {} are missing: {}", lost.len(), machines.len(), lost.join(", "))
    })
}

/// Lists live. Asserts the order and size of the messages, the count and the checksum.
pub(super) async fn strictly(cx: &Context) -> Result<Strict, Stop> {
    strictly_within(cx, TIMEOUT).await
}

/// Like [`strictly`], with a time limit for each message.
pub(super) async fn strictly_within(cx: &Context, timeout: Duration) -> Result<Strict, Stop> {
    let request = WatchInstancesRequest {
        context: Some(cx.cluster().live()),
        stop_when_synced: true,
        ..WatchInstancesRequest::default()
    };
    let mut watch = cx.node()?.within(timeout).watch_instances(request).await?;
    let first = expect::some(watch.next(timeout).await?, "a watch begins with Reset")?;
    let Some(Event::Reset(reset)) = first.event else {
        return Err(Stop::failed("a watch begins with Reset", format!("{first:?}")));
    };
    let mut listing = Strict { scope: reset.scope, ..Strict::default() };
    while let Some(message) = watch.next(timeout).await? {
        let open = listing.synced.is_none();
        expect::shown(open, "a watch that stops when synced ends after Synced", &message)?;
        listing.take(message)?;
    }
    let synced = expect::some(listing.synced.as_ref(), "a listing ends with Synced")?;
    sums(&listing.items, synced)?;
    Ok(listing)
}

impl Strict {
    fn take(&mut self, message: WatchInstancesResponse) -> Verdict {
        let bytes = message.encoded_len();
        expect::that(bytes <= BYTES_MAX, "a message holds at most 1 MiB", || format!("{bytes} bytes"))?;
        match message.event {
            Some(Event::Reset(reset)) => *self = Self { scope: reset.scope, ..Self::default() },
            Some(Event::Items(more)) => {
                let few = (1..=ITEMS_MAX).contains(&more.items.len());
                expect::that(few, "a message holds 1 to 512 items", || more.items.len().to_string())?;
                self.items.extend(more.items);
            }
            Some(Event::Synced(synced)) => self.synced = Some(synced),
            other @ (Some(Event::Upsert(_) | Event::Gone(_) | Event::Bookmark(_)) | None) => {
                return Err(Stop::failed("only items come before Synced", format!("{other:?}")));
            }
        }
        Ok(())
    }
}
