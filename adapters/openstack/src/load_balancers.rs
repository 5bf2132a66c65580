//! Lists load balancers. A listing reads Octavia's collections and the floating IPs, and joins them on its last page.
//!
//! The cost is the pages of each collection, whatever the number of load balancers. There is also one call for each owned pool whose
//! members are not known yet, because only the listing of a single pool contains members. While the runtime waits for load balancers and
//! none has changed, only load balancers and floating IPs are listed.

pub(crate) mod detail;
mod guard_drift;
pub(crate) mod guards;
mod join;
pub(crate) mod kept;
mod known_guards;
mod known_members;
mod known_parts;
pub(crate) mod node_access;
pub(crate) mod settings;
pub(crate) mod sharing;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use cloud_adapter::{
    driver::{Adopter, Collection, Cursor, Fault, LoadBalancerRecord, Page, VendorError},
    vendor::Session,
};

use cloud_api_proto::v1alpha1::LoadBalancerKey;

pub(crate) use self::detail::Detail;
use self::{
    detail::{ACTIVE, PENDING_DELETE},
    guards::{Guards, Needs},
    kept::{Kept, KnownKept},
    known_guards::KnownGuards,
    known_members::KnownMembers,
    known_parts::KnownParts,
    settings::{LoadBalancerOptions, Site},
    sharing::Locks,
};
use crate::{
    OpenStackDriver,
    api::{
        requests::Neighbour,
        responses::{Balancer, FloatingIp, GuardedPort, Listener, Member, Monitor, Pool, SecurityGroup},
        version::Version,
    },
    client::{self, octavia::Listed, security_groups::GuardedPorts},
    ownership::{self, Description, GoNames, Marks, User},
    port::Transport,
};

/// Returns the IDs and names of the networks, subnets, address pools, certificates and addresses that a load balancer uses. `adopter` is
/// the Service that owns the load balancer or may take it over.
pub(crate) fn uses(adopter: &Adopter, observed: &LoadBalancerRecord<Detail>) -> BTreeSet<String> {
    let Detail { balancer, listeners, pools, floating_ips } = &observed.detail;
    let Some(balancer) = balancer else { return BTreeSet::new() };
    let go = GoNames::of(adopter);
    let owns = ownership::owner(&balancer.tags)
        .map_or_else(|| go.made(&balancer.name), |(key, _)| key == adopter.key);
    let is_own = |name: &str, tags: &[String]| {
        let of = |balancer: &str| ownership::is_part_of(&adopter.key, balancer, Marks { name, tags });
        of(go.proven().unwrap_or_default()) || (owns && of(&balancer.name))
    };
    let listeners = listeners.iter().filter(|one| is_own(&one.name, &one.tags));
    let certificates =
        listeners.flat_map(|one| one.default_tls_container_ref.iter().chain(&one.sni_container_refs));
    let pools = pools.iter().filter(|tree| is_own(&tree.pool.name, &tree.pool.tags));
    let members = pools.filter_map(|tree| tree.members.as_ref()).flat_map(|all| all.iter());
    let leads_here = |ip: &&FloatingIp| ip.port_id.is_some() && ip.port_id == balancer.vip_port_id;
    let made_for =
        |ip: &FloatingIp| Description::read(&ip.description).filter(|there| there.key() == adopter.key);
    let addresses: Vec<&FloatingIp> =
        floating_ips.iter().filter(|ip| leads_here(ip) || made_for(ip).is_some()).collect();
    let made_from = addresses.iter().filter_map(|ip| made_for(ip)).map(|there| there.pool);
    let reported = addresses.iter().map(|ip| ip.floating_ip_address.to_string()).chain(made_from);
    let networks = addresses.iter().map(|ip| &ip.floating_network_id).chain(&balancer.vip_network_id);
    let vips = balancer.additional_vips.iter().filter_map(|vip| vip.subnet_id.as_ref());
    let subnets = vips.chain(&balancer.vip_subnet_id).chain(members.filter_map(|one| one.subnet_id.as_ref()));
    networks.chain(subnets).chain(certificates).cloned().chain(reported).collect()
}

#[derive(Debug)]
pub(crate) struct LoadBalancers {
    pub(crate) options: LoadBalancerOptions,
    version: OnceLock<Version>,
    pub(crate) members: KnownMembers,
    pub(crate) parts: KnownParts,
    pub(crate) guards: KnownGuards,
    pub(crate) locks: Locks,
    pub(crate) kept: KnownKept,
    /// The last node whose subnet was looked up, and that subnet. A single entry is enough, because all Services use the same node.
    beside: Mutex<Option<(Neighbour, String)>>,
}

pub(crate) fn attributes(capability: &str) -> BTreeMap<String, String> {
    match capability {
        "loadbalancers" => [("backends".to_owned(), "read-each".to_owned())].into(),
        _ => BTreeMap::new(),
    }
}

impl LoadBalancers {
    pub(crate) fn new(options: LoadBalancerOptions) -> Self {
        Self {
            options,
            version: OnceLock::new(),
            members: KnownMembers::default(),
            parts: KnownParts::default(),
            guards: KnownGuards::default(),
            locks: Locks::default(),
            kept: KnownKept::default(),
            beside: Mutex::default(),
        }
    }

    pub(crate) fn subnet_beside(&self, node: &Neighbour) -> Option<String> {
        let known = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(there, _)| there == node).map(|(_, subnet)| subnet.clone())
    }

    pub(crate) fn learn_subnet(&self, node: &Neighbour, subnet: &str) {
        let known = Some((node.clone(), subnet.to_owned()));
        *self.beside.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// Counts an address that a Service is about to keep. Returns `false` if the Service's namespace already keeps the maximum number of
    /// addresses.
    pub(crate) fn begins_to_keep(&self, record: &Description) -> bool {
        self.kept.begin(record, self.options.most_kept())
    }

    /// Returns the facts for planning. The API version is known, because each plan follows a listing, and the first listing reads the
    /// version.
    pub(crate) fn site(&self) -> Site<'_> {
        let newest = Version { major: u32::MAX, minor: 0 };
        let version = self.version.get().copied().unwrap_or(newest);
        Site { options: &self.options, version, guards: None, kept: self.kept.all() }
    }
}

/// Earlier pages of a listing. The pages are shared, because each later cursor holds all earlier pages.
#[derive(Clone, Debug, Default)]
struct Sweep {
    /// Number of writes by this process when the listing began.
    writes: u64,
    balancers: Vec<Arc<[Balancer]>>,
    listeners: Vec<Arc<[Listener]>>,
    pools: Vec<Arc<[Pool]>>,
    monitors: Vec<Arc<[Monitor]>>,
    floating_ips: Vec<Arc<[FloatingIp]>>,
    /// Whether security groups are managed. The next fields contain the groups and ports that have been read for this purpose so far.
    guarded: bool,
    groups: Vec<Arc<[SecurityGroup]>>,
    ports: Vec<Arc<[GuardedPort]>>,
    /// The pools whose members have to be read. `asked` is the number of these pools whose members have been read.
    unknown: Arc<[Pool]>,
    asked: usize,
    members: Vec<Arc<[Member]>>,
}

/// The collection that a page belongs to. A cursor begins with the word for the collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListedKind {
    Versions,
    Octavia(Listed),
    /// Members of the first pool whose members are not known.
    Members,
    SecurityGroups,
    Ports,
    FloatingIps,
}

impl ListedKind {
    const ALL: [Self; 9] = [
        Self::Versions,
        Self::Octavia(Listed::LoadBalancers),
        Self::Octavia(Listed::Listeners),
        Self::Octavia(Listed::Pools),
        Self::Octavia(Listed::Monitors),
        Self::Members,
        Self::SecurityGroups,
        Self::Ports,
        Self::FloatingIps,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Versions => "versions",
            Self::Octavia(what) => what.word(),
            Self::Members => "members",
            Self::SecurityGroups => "security-groups",
            Self::Ports => "ports",
            Self::FloatingIps => "floatingips",
        }
    }

    /// Parses a cursor such as `listeners?limit=1000&marker=...` or `members/2b7c...?`.
    fn read(at: &str) -> Option<(Self, Option<&str>)> {
        let (path, query) = at.split_once('?')?;
        let word = path.split('/').next();
        let place = Self::ALL.into_iter().find(|place| Some(place.word()) == word)?;
        Some((place, Some(query).filter(|query| !query.is_empty())))
    }
}

impl Sweep {
    /// All cursors of a listing differ.
    fn cursor(&self, place: ListedKind, query: &str) -> String {
        let word = place.word();
        match self.unknown.get(self.asked).filter(|_| place == ListedKind::Members) {
            Some(pool) => format!("{word}/{}?{query}", pool.id),
            None => format!("{word}?{query}"),
        }
    }

    /// Returns the pools that belong to load balancers with owners and whose members are not known. The pools of a load balancer that is
    /// being changed can wait.
    fn unknown(&self, known: &KnownMembers) -> Arc<[Pool]> {
        let balancers = self.balancers.iter().flat_map(|page| page.iter());
        let settled = balancers.filter(|one| one.provisioning_status == ACTIVE);
        let users: BTreeMap<&str, Vec<User>> = settled
            .map(|one| (one.id.as_str(), ownership::users(&one.tags)))
            .filter(|(_, users)| !users.is_empty())
            .collect();
        let pools = self.pools.iter().flat_map(|page| page.iter());
        let of_ours = |pool: &&Pool| {
            let mut users = pool.loadbalancers.iter().filter_map(|one| users.get(one.id.as_str())).flatten();
            // An owner may take over pools without tags, but users that share the load balancer own only pools with their tags.
            users.any(|user| !user.shares || pool.tags.contains(&ownership::part_tag(&user.key)))
        };
        pools.filter(of_ours).filter(|pool| known.of(pool).is_none()).cloned().collect()
    }

    /// Returns the state of security groups that this listing has read. Returns `None` if this listing has not read them, so that the
    /// earlier state remains valid.
    fn guards(&self, known: &LoadBalancers) -> Option<Guards> {
        self.groups.first()?;
        let balancers = self.balancers.iter().flat_map(|page| page.iter());
        let balancers: Vec<&Balancer> =
            balancers.filter(|one| one.provisioning_status != PENDING_DELETE).collect();
        let mut found = Guards::default();
        // A rule for an owner contains the ID of the load balancer. If the owner has left a shared load balancer, these rules are no longer
        // needed.
        let there = balancers.iter().filter(|one| !ownership::is_given_up(&one.tags));
        found.balancers.extend(there.map(|one| one.id.clone()));
        let mut pools: BTreeMap<&str, Vec<&Pool>> = BTreeMap::new();
        for pool in self.pools.iter().flat_map(|page| page.iter()) {
            for of in &pool.loadbalancers {
                pools.entry(&of.id).or_default().push(pool);
            }
        }
        for one in &balancers {
            let pools = pools.get(one.id.as_str()).map(Vec::as_slice).unwrap_or_default();
            let users = ownership::users(&one.tags).into_iter();
            found.users.extend(users.map(|user| (user.id(&one.id), known.user(one, &user.key, pools))));
        }
        let shares: Vec<String> = found.users.keys().cloned().collect();
        found.balancers.extend(shares);
        let groups = self.groups.iter().flat_map(|page| page.iter());
        let ours = groups.filter(|group| ownership::cluster_of(&group.description).is_some());
        found.groups.extend(ours.cloned());
        for port in self.ports.iter().flat_map(|page| page.iter()) {
            found.ports.entry(port.device_id.clone()).or_default().push(port.clone());
        }
        Some(found)
    }

    /// Returns the subnets of owned load balancers and their members that have not been read yet. Also returns needed subnets that were not
    /// visible, because an administrator may have shared these subnets in the meantime.
    fn unknown_subnets(&self, known: &LoadBalancers, found: &Guards) -> Vec<String> {
        let balancers = self.balancers.iter().flat_map(|page| page.iter());
        let ours = balancers.filter(|one| !ownership::users(&one.tags).is_empty());
        let vips = ours.flat_map(|one| {
            let additional = one.additional_vips.iter().filter_map(|vip| vip.subnet_id.as_ref());
            one.vip_subnet_id.iter().chain(additional).cloned().collect::<Vec<_>>()
        });
        let pools = self.pools.iter().flat_map(|page| page.iter());
        let members = pools.filter_map(|pool| known.members.of(pool));
        let members =
            members.flat_map(|all| all.iter().filter_map(|one| one.subnet_id.clone()).collect::<Vec<_>>());
        let subnets: BTreeSet<String> = vips.chain(members).collect();
        let learned = known.guards.subnets();
        let hidden: BTreeSet<String> = found.hidden(&learned).collect();
        subnets.into_iter().filter(|id| !learned.contains_key(id) || hidden.contains(id)).collect()
    }

    /// Returns the collection to list next. Without load balancers, Octavia's other collections are empty, but security groups may exist.
    ///
    /// Load balancers come first, so that a load balancer created during the listing does not appear without its listeners and pools.
    /// Floating IPs come last. If a floating IP was then created for a load balancer that is not listed, that load balancer no longer
    /// exists.
    fn after(&self, place: ListedKind) -> Option<ListedKind> {
        let nothing = self.balancers.iter().all(|page| page.is_empty());
        let left = self.asked < self.unknown.len();
        let next = match place {
            ListedKind::Versions => ListedKind::Octavia(Listed::LoadBalancers),
            ListedKind::Octavia(Listed::LoadBalancers) if nothing && self.guarded => {
                ListedKind::SecurityGroups
            }
            ListedKind::Octavia(Listed::LoadBalancers) | ListedKind::SecurityGroups if nothing => {
                ListedKind::FloatingIps
            }
            ListedKind::Octavia(Listed::LoadBalancers) => ListedKind::Octavia(Listed::Listeners),
            ListedKind::Octavia(Listed::Listeners) => ListedKind::Octavia(Listed::Pools),
            ListedKind::Octavia(Listed::Pools) => ListedKind::Octavia(Listed::Monitors),
            ListedKind::Octavia(Listed::Monitors) | ListedKind::Members if left => ListedKind::Members,
            ListedKind::Octavia(Listed::Monitors) | ListedKind::Members if self.guarded => {
                ListedKind::SecurityGroups
            }
            ListedKind::SecurityGroups => ListedKind::Ports,
            ListedKind::Octavia(Listed::Monitors) | ListedKind::Members | ListedKind::Ports => {
                ListedKind::FloatingIps
            }
            ListedKind::FloatingIps => return None,
        };
        Some(next)
    }
}

impl OpenStackDriver {
    async fn read_page(
        &self,
        session: &Session,
        place: ListedKind,
        query: Option<&str>,
        size: Option<u32>,
        sweep: &mut Sweep,
    ) -> Result<Option<String>, VendorError> {
        fn keep<T>(pages: &mut Vec<Arc<[T]>>, page: client::Page<T>) -> Option<String> {
            pages.push(page.items.into());
            page.next
        }
        let client = &self.client;
        match place {
            ListedKind::Versions => {
                self.balancers.learn(client.octavia_version(session).await?)?;
                Ok(None)
            }
            ListedKind::Octavia(what @ Listed::LoadBalancers) => {
                let page = client.list_octavia(session, what, query, size).await?;
                Ok(keep(&mut sweep.balancers, page))
            }
            ListedKind::Octavia(what @ Listed::Listeners) => {
                let page = client.list_octavia(session, what, query, size).await?;
                Ok(keep(&mut sweep.listeners, page))
            }
            ListedKind::Octavia(what @ Listed::Pools) => {
                let page = client.list_octavia(session, what, query, size).await?;
                Ok(keep(&mut sweep.pools, page))
            }
            ListedKind::Octavia(what @ Listed::Monitors) => {
                let page = client.list_octavia(session, what, query, size).await?;
                Ok(keep(&mut sweep.monitors, page))
            }
            ListedKind::Members => self.read_members(session, query, sweep).await,
            ListedKind::SecurityGroups => {
                let page = client.list_security_groups(session, None, query, size).await?;
                Ok(keep(&mut sweep.groups, page))
            }
            ListedKind::Ports => {
                let page = client.list_guarded_ports(session, GuardedPorts::All, query, size).await?;
                Ok(keep(&mut sweep.ports, page))
            }
            ListedKind::FloatingIps => {
                let page = client.list_floating_ips(session, query, size).await?;
                Ok(keep(&mut sweep.floating_ips, page))
            }
        }
    }

    async fn read_members(
        &self,
        session: &Session,
        query: Option<&str>,
        sweep: &mut Sweep,
    ) -> Result<Option<String>, VendorError> {
        let known = &self.balancers.members;
        let Some(pool) = sweep.unknown.get(sweep.asked).cloned() else { return Ok(None) };
        let page = match self.client.list_members(session, &pool.id, query).await {
            // The pool was deleted after it was listed, alone or with its load balancer. The next listing shows this.
            Err(error) if error.fault == Fault::NotFound => client::Page { items: Vec::new(), next: None },
            page => page?,
        };
        sweep.members.push(page.items.into());
        if page.next.is_none() {
            let members = std::mem::take(&mut sweep.members);
            sweep.asked += 1;
            known.learn(&pool, members.iter().flat_map(|page| page.iter()).cloned().collect());
        }
        Ok(page.next)
    }
}

impl LoadBalancers {
    /// Returns a user of the load balancer, with the access to nodes that this user's pools need.
    fn user(&self, balancer: &Balancer, key: &LoadBalancerKey, pools: &[&Pool]) -> guards::User {
        let tag = ownership::part_tag(key);
        let ours = pools.iter().filter(|pool| pool.tags.contains(&tag));
        let known = ours.map(|pool| Some((Transport::of(&pool.protocol)?, self.members.of(pool)?)));
        // A load balancer that is being created may not have its pools yet.
        let is_active = balancer.provisioning_status == ACTIVE;
        let known: Option<Vec<_>> =
            known.collect::<Option<Vec<_>>>().filter(|all| is_active || !all.is_empty());
        let all = known.as_deref().unwrap_or_default();
        let members =
            || all.iter().flat_map(|(transport, all)| all.iter().map(|member| (*transport, member)));
        let addresses = members().map(|(_, member)| member.address).collect();
        let needs = known.is_some().then(|| Needs::of(balancer, members(), self.options.is_ovn()));
        guards::User { cluster_id: key.cluster_id.clone(), is_active, needs, addresses }
    }

    /// Returns the collection with which a listing begins. The first listing of a process reads the API version.
    fn beginning(&self) -> ListedKind {
        if self.version.get().is_some() {
            ListedKind::Octavia(Listed::LoadBalancers)
        } else {
            ListedKind::Versions
        }
    }

    fn learn(&self, version: Version) -> Result<(), VendorError> {
        if version < Version::NEEDED {
            let needed = Version::NEEDED;
            let text = format!("this cloud's Octavia API is {version}, and load balancers need {needed}");
            return Err(VendorError::new(Fault::Unsupported, text));
        }
        self.version.get_or_init(|| version);
        Ok(())
    }
}

impl Collection<LoadBalancerRecord<Detail>> for OpenStackDriver {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<LoadBalancerRecord<Detail>>, VendorError> {
        let LoadBalancers { members: known, parts, .. } = &*self.balancers;
        let guarded = self.balancers.options.manage_security_groups;
        let begun = || Sweep { writes: parts.writes(), guarded, ..Sweep::default() };
        let mut sweep: Sweep = cursor.and_then(Cursor::kept).cloned().unwrap_or_else(begun);
        let (place, query) = match cursor {
            None => (self.balancers.beginning(), None),
            Some(cursor) => ListedKind::read(cursor.at())
                .ok_or_else(|| VendorError::nonsense(format!("invalid cursor {}", cursor.at())))?,
        };
        let next = self.read_page(session, place, query, size, &mut sweep).await?;
        if place == ListedKind::Octavia(Listed::Monitors) && next.is_none() {
            sweep.unknown = sweep.unknown(known);
        }
        let next = match next {
            Some(query) => Some(sweep.cursor(place, &query)),
            None if place == ListedKind::Octavia(Listed::LoadBalancers) && parts.join(&mut sweep) => {
                Some(sweep.cursor(ListedKind::FloatingIps, ""))
            }
            None => sweep.after(place).map(|next| sweep.cursor(next, "")),
        };
        Ok(match next {
            Some(next) => {
                Page { items: Vec::new(), next: Some(Cursor::new(next).keeping(sweep)), total: None }
            }
            None => {
                known.forget_others(sweep.pools.iter().flat_map(|page| page.iter()));
                parts.learn(&sweep);
                self.balancers.locks.forget_unused();
                let kept = Kept::of(sweep.floating_ips.iter().flat_map(|page| page.iter()));
                self.balancers.kept.learn(kept, sweep.writes);
                if let Some(guards) = sweep.guards(&self.balancers) {
                    let unknown = sweep.unknown_subnets(&self.balancers, &guards);
                    self.learn_subnets(session, &unknown).await?;
                    self.balancers.guards.learn(guards);
                }
                let guards = self.balancers.guards.last();
                Page { items: join::records(&sweep, known, guards.as_deref()), next: None, total: None }
            }
        })
    }
}
