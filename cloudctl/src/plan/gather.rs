//! Reads the pages `/plan` of all controllers.

use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use telemetry::report::{ControllerStatus, Plans};

use super::Planned;
use crate::{
    gaps::gaps,
    missing::Missing,
    options::Component,
    session::{Process, Session},
};

/// Maximum number of pages per replica. They hold 100,000 objects, more than a cluster has.
const PAGES: usize = 1_000;
/// Number of replicas that are read at once, because each replica calls the adapter.
const AT_ONCE: usize = 4;

/// A replica whose plans were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Planner {
    /// The controller, such as `service-controller`.
    pub controller: String,
    /// The name of the replica's pod, or the replica's address.
    pub process: String,
    /// Whether the replica runs with `--dry-run`.
    pub dry_run: bool,
    /// Number of objects in the replica's shards that the replica has reconciled.
    pub looked_at: u64,
    /// Number of objects in the replica's shards.
    pub of: u64,
    /// Number of objects in the replica's shards that are not in sync.
    pub objects: u64,
}

impl Planner {
    pub(crate) fn is_complete(&self) -> bool {
        self.looked_at >= self.of
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gathered {
    pub(crate) planners: Vec<Planner>,
    /// The plans, sorted by kind, key and controller.
    pub(crate) objects: Vec<Planned>,
    pub(crate) gaps: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Read {
    planner: Planner,
    objects: Vec<Planned>,
}

/// Reads the holders of the shards first, and then all plans. If a replica acquires a shard between the two reads, the shard is in that
/// replica's plan. A shard that no replica held is reported as a gap.
pub(crate) async fn all(session: &mut Session) -> Gathered {
    let pages = session.pages::<ControllerStatus>(&Component::CONTROLLERS, "/status").await;
    let found = |component: &&Component| session.processes.iter().any(|it| it.component == **component);
    let gaps = Component::CONTROLLERS.iter().filter(found).flat_map(|it| gaps(*it, &pages)).collect();
    let of_controllers = |it: &&Process| Component::CONTROLLERS.contains(&it.component);
    let processes: Vec<Process> = session.processes.iter().filter(of_controllers).cloned().collect();
    let reading = processes.iter().map(|process| of_process(session, process));
    let read: Vec<(Option<Read>, Option<Missing>)> = stream::iter(reading).buffered(AT_ONCE).collect().await;
    let (mut planners, mut objects) = (Vec::new(), Vec::new());
    for (plans, why) in read {
        session.missing.extend(why);
        if let Some(plans) = plans {
            planners.push(plans.planner);
            objects.extend(plans.objects);
        }
    }
    let order = |it: &Planned| (it.what.kind.clone(), it.what.key.clone(), it.controller.clone());
    objects.sort_by_cached_key(order);
    Gathered { planners, objects, gaps }
}

/// Reads the pages of one replica. Stops after the last page, or at a page that cannot be read.
async fn of_process(session: &Session, process: &Process) -> (Option<Read>, Option<Missing>) {
    let mut read: Option<Read> = None;
    let (mut path, mut before) = ("/plan".to_owned(), String::new());
    for _page in 0..PAGES {
        let plans: Plans = match session.page(process, &path).await {
            Ok(plans) => plans,
            Err(why) => return (read, Some(why)),
        };
        let after = plans.next.clone();
        add(read.get_or_insert_default(), process, plans);
        match after {
            None => return (read, None),
            // The keys must increase. Otherwise a faulty replica could return the same page up to [`PAGES`] times.
            Some(after) if after <= before => break,
            Some(after) => {
                path = format!("/plan?after={after}");
                before = after;
            }
        }
    }
    (read, Some(process.lacks("/plan has too many pages: only the first pages are shown")))
}

fn add(read: &mut Read, process: &Process, plans: Plans) {
    let Plans { controller, dry_run, looked_at, of, objects, .. } = plans;
    let more = u64::try_from(objects.len()).unwrap_or(u64::MAX);
    let objects_so_far = read.planner.objects.saturating_add(more);
    let name = controller.clone();
    read.objects.extend(objects.into_iter().map(|what| Planned { controller: name.clone(), what }));
    let process = process.name.clone();
    read.planner = Planner { controller, process, dry_run, looked_at, of, objects: objects_so_far };
}
