//! The pages `/plan` of all controllers.

use ::pages::report::{ControllerStatus, Plans};
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};

use super::Planned;
use crate::{
    gaps::gaps,
    missing::Missing,
    options::Component,
    session::{Process, Session},
};

/// Pages of one replica: 100,000 objects, more than a cluster has.
const PAGES: usize = 1_000;
/// Replicas that are asked at once. Each asks the adapter.
const AT_ONCE: usize = 4;

/// A replica whose plans were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Planner {
    /// Such as `service-controller`.
    pub controller: String,
    /// The name of its pod, or where it is.
    pub process: String,
    /// It changes nothing: `--dry-run`.
    pub dry_run: bool,
    /// How many objects of its shards it has looked at.
    pub looked_at: u64,
    /// Of how many.
    pub of: u64,
    /// How many of them are not as wanted.
    pub objects: u64,
}

impl Planner {
    /// Whether it has looked at all of its objects.
    pub(crate) fn is_complete(&self) -> bool {
        self.looked_at >= self.of
    }
}

/// What was read of all replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gathered {
    /// Whose plans these are.
    pub(crate) planners: Vec<Planner>,
    /// In the order of their kinds, keys and controllers.
    pub(crate) objects: Vec<Planned>,
    /// What the replicas that were read leave open.
    pub(crate) gaps: Vec<String>,
}

/// What a replica plans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Read {
    planner: Planner,
    objects: Vec<Planned>,
}

/// Reads all plans. Who holds what is read first: what a replica takes over afterwards is in its plan, and what it did not hold is not.
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

/// The pages of one replica, as far as they can be read.
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
            // Keys grow, or the pages have no end.
            Some(after) if after <= before => break,
            Some(after) => {
                path = format!("/plan?after={after}");
                before = after;
            }
        }
    }
    (read, Some(process.lacks("/plan has no end: only its first pages are shown")))
}

/// What a page adds.
fn add(read: &mut Read, process: &Process, plans: Plans) {
    let Plans { controller, dry_run, looked_at, of, objects, .. } = plans;
    let more = u64::try_from(objects.len()).unwrap_or(u64::MAX);
    let objects_so_far = read.planner.objects.saturating_add(more);
    let name = controller.clone();
    read.objects.extend(objects.into_iter().map(|what| Planned { controller: name.clone(), what }));
    let process = process.name.clone();
    read.planner = Planner { controller, process, dry_run, looked_at, of, objects: objects_so_far };
}
