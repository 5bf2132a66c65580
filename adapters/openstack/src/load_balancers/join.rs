//! Joins the pages of a listing into records of load balancers. The functions have no side effects.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::SystemTime,
};

use cloud_adapter::driver::{LoadBalancerRecord, Origin};
use cloud_api_proto::v1alpha1::{
    LoadBalancer, LoadBalancerAddress, LoadBalancerKey, LoadBalancerState, Owner, PortStatus, Protocol,
    VendorIds,
    load_balancer_address::{IpMode, Value},
};

use super::{
    Sweep,
    detail::{Detail, PENDING_DELETE, PoolTree},
    guards::Guards,
    known_members::KnownMembers,
};
use crate::{
    api::responses::{Balancer, FloatingIp, Listener, Monitor},
    ownership::{self, Description, Marks, User},
    port::{Port, Transport},
};

type Record = LoadBalancerRecord<Detail>;

/// The error in the status of a Service port if Octavia reports that its listener has failed.
const PORT_FAILED: &str = "ListenerFailed";
const ERROR: &str = "ERROR";

/// Returns the load balancers, and records of deleted load balancers whose floating IPs or security group rules still exist.
pub(super) fn records(sweep: &Sweep, known: &KnownMembers, guards: Option<&Guards>) -> Vec<Record> {
    let balancers: Vec<&Balancer> = sweep.balancers.iter().flat_map(|page| page.iter()).collect();
    let mut parts = Parts::of(sweep, known);
    let owners = balancers.iter().filter_map(|one| ownership::owner(&one.tags)).map(|(key, _)| words(&key));
    let mut keys: BTreeSet<(String, String)> = owners.collect();
    let drift = guards.map(|guards| &guards.drift);
    let reached = |id: &str| drift.is_none_or(|drift| !drift.balancers.contains(id));
    let mut records = Vec::with_capacity(balancers.len());
    for balancer in &balancers {
        let users = ownership::users(&balancer.tags);
        let tree = parts.tree(balancer);
        keys.extend(users.iter().map(|user| words(&user.key)));
        for user in users.iter().filter(|user| user.shares) {
            records.push(share(balancer, &tree, user, &users, reached(&user.id(&balancer.id))));
        }
        records.push(record(balancer, tree, &users, reached(&balancer.id)));
    }
    let left = parts.own.iter().filter(|(key, _)| !keys.contains(*key)).flat_map(|(_, ips)| ips);
    let left = left.filter(|ip| Description::read(&ip.description).is_some_and(|ours| !ours.keep));
    records.extend(left.filter_map(|ip| remains(ip)));
    let left = drift.into_iter().flat_map(|drift| &drift.left).filter(|key| !keys.contains(&words(key)));
    records.extend(left.map(rules_left));
    records
}

/// The listeners, pools and floating IPs of all load balancers, by the load balancer's ID unless stated otherwise.
struct Parts<'a> {
    listeners: BTreeMap<&'a str, Vec<Listener>>,
    pools: BTreeMap<&'a str, Vec<PoolTree>>,
    /// Attached floating IPs, by the ID of the port.
    at_port: BTreeMap<&'a str, Vec<&'a FloatingIp>>,
    /// The unattached floating IPs, by the key for which they were created.
    own: BTreeMap<(String, String), Vec<&'a FloatingIp>>,
}

impl<'a> Parts<'a> {
    fn of(sweep: &'a Sweep, known: &KnownMembers) -> Self {
        let mut monitors: BTreeMap<&str, &Monitor> = BTreeMap::new();
        for monitor in sweep.monitors.iter().flat_map(|page| page.iter()) {
            monitors.extend(monitor.pools.first().map(|pool| (pool.id.as_str(), monitor)));
        }
        let mut parts = Self {
            listeners: BTreeMap::new(),
            pools: BTreeMap::new(),
            at_port: BTreeMap::new(),
            own: BTreeMap::new(),
        };
        for listener in sweep.listeners.iter().flat_map(|page| page.iter()) {
            for balancer in &listener.loadbalancers {
                parts.listeners.entry(&balancer.id).or_default().push(listener.clone());
            }
        }
        for pool in sweep.pools.iter().flat_map(|page| page.iter()) {
            let monitor = monitors.get(pool.id.as_str()).map(|monitor| (*monitor).clone());
            let mut tree = PoolTree { pool: pool.clone(), monitor, members: known.of(pool) };
            // This field only shows that members have changed. The comparison uses the members themselves.
            tree.pool.updated_at = None;
            for balancer in &pool.loadbalancers {
                parts.pools.entry(&balancer.id).or_default().push(tree.clone());
            }
        }
        for ip in sweep.floating_ips.iter().flat_map(|page| page.iter()) {
            match (&ip.port_id, Description::read(&ip.description)) {
                (Some(port), _) => parts.at_port.entry(port).or_default().push(ip),
                (None, Some(ours)) => parts.own.entry(words(&ours.key())).or_default().push(ip),
                (None, None) => (),
            }
        }
        parts
    }
}

impl Parts<'_> {
    /// Returns a load balancer with its listeners and pools, and with the floating IPs of its VIP and of its users.
    fn tree(&mut self, balancer: &Balancer) -> Detail {
        let at_port = balancer.vip_port_id.as_deref().and_then(|port| self.at_port.get(port));
        let owner = ownership::owner(&balancer.tags).map(|(key, _)| key);
        let sharers = ownership::sharers(&balancer.tags).into_iter().map(|user| user.key);
        let own = owner.into_iter().chain(sharers).filter_map(|key| self.own.get(&words(&key))).flatten();
        let floating_ips = at_port.into_iter().flatten().chain(own).map(|ip| (*ip).clone()).collect();
        Detail {
            // This field only shows that a listener or a pool has changed. The comparison uses the listeners and pools themselves.
            balancer: Some(Balancer { updated_at: None, ..balancer.clone() }),
            floating_ips,
            listeners: self.listeners.remove(balancer.id.as_str()).unwrap_or_default(),
            pools: self.pools.remove(balancer.id.as_str()).unwrap_or_default(),
        }
    }
}

fn words(key: &LoadBalancerKey) -> (String, String) {
    (key.cluster_id.clone(), key.owner_uid.clone())
}

/// Returns the record of the load balancer for its owner. `reached` is set if the security groups give the load balancer all the access
/// that it needs.
fn record(balancer: &Balancer, detail: Detail, users: &[User], reached: bool) -> Record {
    let (key, owner) = ownership::owner(&balancer.tags).unzip();
    let is_others = |name: &str, tags: &[String]| {
        let another = ownership::other_user(users, &balancer.name, Marks { name, tags }, key.as_ref());
        another.is_some_and(|user| user.shares)
    };
    let own = Own::of(&detail, |name, tags| !is_others(name, tags));
    let public = public(balancer, &detail);
    // A load balancer that was created in one call already has the hash, but is not complete without its floating IP.
    let lacks = ownership::expects_floating_ip(&balancer.tags) && public.is_none() || !reached;
    let applied_hash = if lacks { "" } else { ownership::applied_hash(&balancer.tags) };
    let summary = LoadBalancer {
        vendor_id: balancer.id.clone(),
        key,
        owner,
        applied_hash: applied_hash.to_owned(),
        fence: ownership::fence(&balancer.tags),
        ..summary(balancer, &detail, &own, !applied_hash.is_empty() && users.len() > 1)
    };
    let left = ownership::is_left(&balancer.name, &balancer.tags);
    Record {
        left,
        origin: if ownership::is_adopted(&balancer.tags) { Origin::Adopted } else { Origin::Created },
        adoptable_by: ownership::adoptable_by(&balancer.tags),
        shared_with: ownership::shared_with(&balancer.tags),
        ..Record::new(summary, detail)
    }
}

/// Returns the record of the load balancer for an owner that shares the load balancer.
fn share(balancer: &Balancer, tree: &Detail, user: &User, users: &[User], reached: bool) -> Record {
    let own = Own::of(tree, |name, tags| {
        let part = Marks { name, tags };
        user.has(&balancer.name, part)
            && ownership::other_user(users, &balancer.name, part, Some(&user.key)).is_none()
    });
    let uid = &user.key.owner_uid;
    let common =
        summary(balancer, tree, &own, !ownership::sharer_hash(&balancer.tags, uid).is_empty() && reached);
    let mut ids = common.vendor_ids.unwrap_or_default();
    // With the key `loadbalancer`, a deletion could treat the load balancer as owned by this user alone.
    ids.ids.remove("loadbalancer");
    ids.ids.remove("floatingip");
    ids.ids.insert("loadbalancer/shared".to_owned(), balancer.id.clone());
    let applied_hash = if reached { ownership::sharer_hash(&balancer.tags, uid) } else { "" };
    let summary = LoadBalancer {
        vendor_id: user.id(&balancer.id),
        key: Some(user.key.clone()),
        owner: Some(user.owner.clone()),
        applied_hash: applied_hash.to_owned(),
        fence: ownership::sharer_fence(&balancer.tags, uid),
        vendor_ids: Some(ids),
        ..common
    };
    Record::new(summary, tree.clone())
}

/// The listeners and pools of one owner on a load balancer that other owners may share.
struct Own<'a> {
    listeners: Vec<&'a Listener>,
    pools: Vec<&'a PoolTree>,
}

impl<'a> Own<'a> {
    fn of(tree: &'a Detail, is_own: impl Fn(&str, &[String]) -> bool) -> Self {
        Self {
            listeners: tree.listeners.iter().filter(|one| is_own(&one.name, &one.tags)).collect(),
            pools: tree.pools.iter().filter(|one| is_own(&one.pool.name, &one.pool.tags)).collect(),
        }
    }

    fn ports(&self) -> BTreeMap<Port, &'a Listener> {
        self.listeners.iter().filter_map(|one| Some((one.port()?, *one))).collect()
    }

    fn statuses(&self) -> impl Iterator<Item = &'a str> {
        let listeners = self.listeners.iter().map(|one| one.provisioning_status.as_str());
        listeners.chain(self.pools.iter().map(|one| one.pool.provisioning_status.as_str()))
    }
}

/// Returns the fields of a load balancer as they apply to one of its users. The caller sets the owner. `complete` is set if this user's
/// share is complete and may ignore changes by other users.
fn summary(balancer: &Balancer, tree: &Detail, own: &Own<'_>, complete: bool) -> LoadBalancer {
    let backends: usize =
        own.pools.iter().filter_map(|pool| pool.members.as_ref()).map(|all| all.len()).sum();
    LoadBalancer {
        state: state(balancer, own, complete).into(),
        addresses: addresses(balancer, own, public(balancer, tree)),
        vendor_ids: Some(vendor_ids(balancer, tree, own)),
        listeners: own.ports().keys().map(ToString::to_string).collect(),
        backends: u32::try_from(backends).unwrap_or(u32::MAX),
        name: balancer.name.clone(),
        created_at: created_at(balancer),
        ..LoadBalancer::default()
    }
}

/// Returns a record of a deleted load balancer. The record makes the runtime release the floating IP that is left.
fn remains(ip: &FloatingIp) -> Option<Record> {
    let ours = Description::read(&ip.description)?;
    let summary = LoadBalancer {
        vendor_id: format!("floatingip/{}", ip.id),
        key: Some(ours.key()),
        owner: Some(ours.owner()),
        state: LoadBalancerState::Absent.into(),
        vendor_ids: Some(VendorIds { ids: [("floatingip".to_owned(), ip.id.clone())].into() }),
        ..LoadBalancer::default()
    };
    let detail =
        Detail { balancer: None, listeners: Vec::new(), pools: Vec::new(), floating_ips: vec![ip.clone()] };
    Some(Record::new(summary, detail))
}

/// Returns a record of a deleted load balancer whose security group rules still exist.
fn rules_left(key: &LoadBalancerKey) -> Record {
    let summary = LoadBalancer {
        vendor_id: format!("securitygroup/{}/{}", ownership::group_name(&key.cluster_id), key.owner_uid),
        key: Some(key.clone()),
        owner: Some(Owner { kind: "Service".to_owned(), uid: key.owner_uid.clone(), ..Owner::default() }),
        state: LoadBalancerState::Absent.into(),
        ..LoadBalancer::default()
    };
    let detail =
        Detail { balancer: None, listeners: Vec::new(), pools: Vec::new(), floating_ips: Vec::new() };
    Record::new(summary, detail)
}

/// Returns the state of the load balancer for one of its users. If `complete` is set, changes by other users do not count. Octavia locks
/// the whole load balancer, but the statuses of the listeners and pools show which of them are being changed.
fn state(balancer: &Balancer, own: &Own<'_>, complete: bool) -> LoadBalancerState {
    let has = |what: fn(&str) -> bool| own.statuses().any(what);
    match balancer.provisioning_status.as_str() {
        "ACTIVE" if has(|status| status == ERROR) => LoadBalancerState::Degraded,
        "ACTIVE" => LoadBalancerState::Active,
        "PENDING_UPDATE" if complete && !has(|status| status != "ACTIVE") => LoadBalancerState::Active,
        "PENDING_CREATE" | "PENDING_UPDATE" => LoadBalancerState::Pending,
        PENDING_DELETE | "DELETED" => LoadBalancerState::Deleting,
        ERROR => LoadBalancerState::Error,
        _ => LoadBalancerState::Unspecified,
    }
}

/// Returns the floating IP that belongs to the load balancer's own IPv4 address.
fn public(balancer: &Balancer, detail: &Detail) -> Option<IpAddr> {
    let own = balancer.ipv4()?;
    let leads_there = |ip: &&FloatingIp| {
        ip.port_id.is_some()
            && ip.port_id == balancer.vip_port_id
            && ip.fixed_ip_address.is_none_or(|fixed| fixed == own)
    };
    Some(detail.floating_ips.iter().find(leads_there)?.floating_ip_address)
}

/// Returns the addresses, in the sequence of the requested families. A public load balancer reports its floating IP instead of its own IPv4
/// address, or no IPv4 address while it has no floating IP.
fn addresses(balancer: &Balancer, parts: &Own<'_>, public: Option<IpAddr>) -> Vec<LoadBalancerAddress> {
    let own = balancer.ipv4();
    let hidden = ownership::expects_floating_ip(&balancer.tags);
    let additional = balancer.additional_vips.iter().filter_map(|vip| vip.ip_address);
    let reported = balancer.vip_address.into_iter().chain(additional).filter_map(|vip| match public {
        _ if Some(vip) != own => Some(vip),
        Some(public) => Some(public),
        None => Some(vip).filter(|_| !hidden),
    });
    // With PROXY protocol, kube-proxy must not bypass the load balancer, because packets would then lack the header.
    let proxied = parts.pools.iter().any(|tree| tree.pool.protocol.starts_with("PROXY"));
    let mode = if proxied { IpMode::Proxy } else { IpMode::Vip };
    let ports: Vec<PortStatus> = parts.listeners.iter().filter_map(|one| failed_port(one)).collect();
    let address = |ip: IpAddr| LoadBalancerAddress {
        value: Some(Value::Ip(ip.to_string())),
        ip_mode: mode.into(),
        ports: ports.clone(),
    };
    reported.map(address).collect()
}

fn failed_port(listener: &Listener) -> Option<PortStatus> {
    let protocol = match Transport::of(&listener.protocol)? {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
        Transport::Sctp => Protocol::Sctp,
    };
    (listener.provisioning_status == ERROR).then(|| PortStatus {
        port: listener.protocol_port.into(),
        protocol: protocol.into(),
        error: Some(PORT_FAILED.to_owned()),
    })
}

fn vendor_ids(balancer: &Balancer, tree: &Detail, own: &Own<'_>) -> VendorIds {
    let mut ids = vec![("loadbalancer".to_owned(), balancer.id.clone())];
    for (port, listener) in own.ports() {
        ids.extend(listener.default_pool_id.iter().map(|pool| (format!("pool/{port}"), pool.clone())));
        ids.push((format!("listener/{port}"), listener.id.clone()));
    }
    ids.extend(tree.floating_ips.iter().take(1).map(|ip| ("floatingip".to_owned(), ip.id.clone())));
    VendorIds { ids: ids.into_iter().collect() }
}

fn created_at(balancer: &Balancer) -> Option<prost_types::Timestamp> {
    let zoned = balancer.created_at?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(SystemTime::from(zoned.timestamp()).into())
}
