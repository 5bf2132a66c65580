//! Computes the changes of a pool. Pure functions.

use std::{collections::BTreeMap, net::IpAddr};

use cloud_adapter::kit::Part;

use super::wanted::WantedPool;
use crate::{
    api::{
        requests::{NewMember, NewMonitor, NewPersistence, NewPool, NullOr, UpdatePool},
        responses::{Member, Monitor, Persistence},
    },
    load_balancers::detail::PoolTree,
    port::Port,
    step::Step,
};

/// The timeout of the session persistence, in seconds. Octavia sets a default for UDP and SCTP; that default does not count as a
/// difference.
type Timeout = Option<u32>;

/// Builds a pool with members and health monitor, for a load balancer that is created in one call.
pub(super) fn whole(port: Port, wanted: &WantedPool, tags: Vec<String>) -> NewPool {
    NewPool {
        healthmonitor: wanted.monitor.clone(),
        members: wanted.members.values().cloned().collect(),
        ..bare(port, wanted, tags)
    }
}

pub(super) fn create_pool(balancer: Part, port: Port, wanted: &WantedPool, tags: Vec<String>) -> Vec<Step> {
    let mut steps = vec![Step::CreatePool { balancer, pool: bare(port, wanted, tags).into() }];
    steps.extend(member_change(Part::Coming, &port.name(), Some(&[]), wanted));
    let (pool, name) = (Part::Coming, port.name());
    steps.extend(wanted.monitor.clone().map(|monitor| Step::CreateMonitor { pool, name, monitor }));
    steps
}

/// Returns the steps that change a pool whose protocol is already right. `tags`: the new tags, if they change.
pub(super) fn pool_changes(tree: &PoolTree, wanted: &WantedPool, tags: Option<Vec<String>>) -> Vec<Step> {
    let (id, name) = (&tree.pool.id, &tree.pool.name);
    let mut steps: Vec<Step> =
        member_change(Part::Known(id.clone()), name, tree.members.as_deref(), wanted).into_iter().collect();
    let mut change = UpdatePool { tags, ..UpdatePool::default() };
    if tree.pool.lb_algorithm != wanted.algorithm {
        change.lb_algorithm = Some(wanted.algorithm);
    }
    change.session_persistence =
        persistence(tree.pool.session_persistence.as_ref(), wanted.persistence.as_ref());
    if change != UpdatePool::default() {
        steps.push(Step::UpdatePool { id: id.clone(), name: name.clone(), change });
    }
    steps.extend(monitor_change(id, name, tree.monitor.as_ref(), wanted.monitor.as_ref()));
    steps
}

fn bare(port: Port, wanted: &WantedPool, tags: Vec<String>) -> NewPool {
    NewPool {
        name: port.name(),
        protocol: wanted.protocol,
        lb_algorithm: wanted.algorithm,
        tags,
        session_persistence: wanted.persistence.clone(),
        healthmonitor: None,
        members: Vec::new(),
    }
}

/// Returns the step that changes members. It writes only new members and changed weights, or the whole set if members are removed. `there`:
/// the current members; `None` if they are not known.
///
/// A different subnet of a member does not count as a difference, because the subnet of a member is immutable.
fn member_change(pool: Part, name: &str, there: Option<&[Member]>, wanted: &WantedPool) -> Option<Step> {
    let name = name.to_owned();
    let all = || wanted.members.values().cloned().collect();
    let Some(there) = there else { return Some(Step::SetMembers { pool, name, members: all() }) };
    let there: BTreeMap<(IpAddr, u16), &Member> =
        there.iter().map(|member| ((member.address, member.protocol_port), member)).collect();
    if there.keys().any(|key| !wanted.members.contains_key(key)) {
        return Some(Step::SetMembers { pool, name, members: all() });
    }
    let same = |there: &&Member, wanted: &NewMember| {
        // A monitor port that is equal to the member's own port has the same effect as no monitor port.
        let probed = there.monitor_port.filter(|port| *port != there.protocol_port);
        there.weight == Some(wanted.weight) && probed == wanted.monitor_port
    };
    let differs = |(key, wanted): &(&(IpAddr, u16), &NewMember)| {
        there.get(*key).is_none_or(|there| !same(there, wanted))
    };
    let members: Vec<NewMember> =
        wanted.members.iter().filter(differs).map(|(_, member)| member.clone()).collect();
    (!members.is_empty()).then_some(Step::AddMembers { pool, name, members })
}

fn persistence(
    there: Option<&Persistence>,
    wanted: Option<&NewPersistence>,
) -> Option<NullOr<NewPersistence>> {
    match (there, wanted) {
        (None, None) => None,
        (Some(_), None) => Some(NullOr::Null),
        (None, Some(wanted)) => Some(NullOr::Value(wanted.clone())),
        (Some(there), Some(wanted)) => {
            let timeout: Timeout = wanted.persistence_timeout.or(there.persistence_timeout);
            let same = there.kind == wanted.kind && there.persistence_timeout == timeout;
            (!same).then(|| NullOr::Value(wanted.clone()))
        }
    }
}

/// Recreates a health monitor if its type changes, because the type is immutable and a pool has at most one monitor.
fn monitor_change(id: &str, name: &str, there: Option<&Monitor>, wanted: Option<&NewMonitor>) -> Vec<Step> {
    let (pool, name) = (Part::Known(id.to_owned()), name.to_owned());
    let delete = |there: &Monitor| Step::DeleteMonitor { id: there.id.clone(), name: name.clone() };
    match (there, wanted) {
        (None, None) => Vec::new(),
        (Some(there), None) => vec![delete(there)],
        (None, Some(wanted)) => vec![Step::CreateMonitor { pool, name, monitor: wanted.clone() }],
        (Some(there), Some(wanted)) if there.kind != wanted.kind => {
            vec![delete(there), Step::CreateMonitor { pool, name, monitor: wanted.clone() }]
        }
        (Some(there), Some(wanted)) if is_so(there, wanted) => Vec::new(),
        (Some(there), Some(wanted)) => {
            vec![Step::UpdateMonitor { id: there.id.clone(), name, change: wanted.settings.clone() }]
        }
    }
}

fn is_so(there: &Monitor, wanted: &NewMonitor) -> bool {
    let settings = &wanted.settings;
    (there.delay, there.timeout, there.max_retries)
        == (settings.delay, settings.timeout, settings.max_retries)
        && there.max_retries_down == Some(settings.max_retries_down)
        && (wanted.settings.url_path.is_none() || there.url_path == settings.url_path)
}
