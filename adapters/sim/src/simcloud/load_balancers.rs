//! Load balancers: trees of listeners, pools and members. A load balancer accepts one change at a time, and each change takes some time.
//!
//! Each tree is one record. Every accepted write makes the record PENDING, and stores when and how the change ends.
//! [`LoadBalancers::settle`] applies the changes that are due. No background task runs, so equal calls at equal times have equal results.

mod addresses;
mod children;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::addresses::Addresses;
use super::Moment;
use super::error::ApiError;
use super::model::{LoadBalancer, ProvisioningStatus, Tags};
use super::quota;
use super::requests::{CreateLoadBalancer, UpdateLoadBalancer};
use super::settings::Settings;
use super::table::{Page, PageRequest, Table, Write, id};

#[derive(Debug)]
pub(super) struct LoadBalancers {
    table: Table<LoadBalancer>,
    children: Serials,
    /// The request and the load balancer of each client token.
    tokens: BTreeMap<String, (CreateLoadBalancer, u64)>,
    addresses: Addresses,
    due: BTreeMap<(Moment, u64), Outcome>,
}

/// The last serial numbers of listeners, pools and members. Their IDs are unique across all load balancers.
#[derive(Debug, Default)]
struct Serials {
    listener: u64,
    pool: u64,
}

impl Serials {
    fn listener(&mut self) -> String {
        self.listener = self.listener.saturating_add(1);
        id("ls", self.listener)
    }

    fn pool(&mut self) -> String {
        self.pool = self.pool.saturating_add(1);
        id("pool", self.pool)
    }
}

/// How a pending change ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    Failure,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Order<'a> {
    pub(super) settings: &'a Settings,
    pub(super) now: Moment,
    /// `now` as a wall-clock time, for timestamps.
    pub(super) wall: Timestamp,
    pub(super) outcome: Outcome,
}

impl Order<'_> {
    pub(super) const fn write(&self) -> Write {
        Write { now: self.now, lag: self.settings.lag() }
    }
}

impl LoadBalancers {
    pub(super) fn new() -> Self {
        Self {
            table: Table::new("lb"),
            children: Serials::default(),
            tokens: BTreeMap::new(),
            addresses: Addresses::default(),
            due: BTreeMap::new(),
        }
    }

    /// Applies the changes that are due. Must be called before any other access.
    pub(super) fn settle(&mut self, now: Moment, lag: Duration) {
        while let Some(entry) = self.due.first_entry() {
            let (at, serial) = *entry.key();
            if at > now {
                break;
            }
            let outcome = entry.remove();
            self.settle_one(serial, outcome, Write { now: at, lag });
        }
    }

    fn settle_one(&mut self, serial: u64, outcome: Outcome, write: Write) {
        let Some(truth) = self.table.truth(serial) else { return };
        let mut balancer = LoadBalancer::clone(truth);
        match outcome {
            Outcome::Success if balancer.status == ProvisioningStatus::PendingDelete => {
                self.forget(serial, write);
                return;
            }
            Outcome::Success => {
                balancer.vips = self.addresses.of(serial);
                children::settle(&mut balancer);
            }
            Outcome::Failure => children::fail(&mut balancer),
        }
        self.table.put(serial, balancer, write);
    }

    fn forget(&mut self, serial: u64, write: Write) {
        self.table.remove(serial, write);
        self.addresses.release(serial);
        self.tokens.retain(|_, (_, owner)| *owner != serial);
    }

    pub(super) fn list(
        &self,
        page: PageRequest<'_>,
        now: Moment,
        tags: &[(&str, Option<&str>)],
    ) -> Result<Page<LoadBalancer>, ApiError> {
        self.table.page(page, now, |balancer| has_tags(&balancer.tags, tags))
    }

    pub(super) fn get(&self, id: &str, now: Moment) -> Result<Arc<LoadBalancer>, ApiError> {
        let found = self.table.serial(id).and_then(|serial| self.table.visible(serial, now));
        found.cloned().ok_or_else(|| ApiError::not_found("load balancer", id))
    }

    pub(super) fn all(&self) -> Vec<Arc<LoadBalancer>> {
        self.table.truths().map(|(_, balancer)| Arc::clone(balancer)).collect()
    }

    /// Creates a load balancer, or returns the load balancer that was created with the same client token.
    pub(super) fn create(
        &mut self,
        request: CreateLoadBalancer,
        order: &Order<'_>,
    ) -> Result<Arc<LoadBalancer>, ApiError> {
        if let Some(there) = self.by_token(&request)? {
            return Ok(there);
        }
        addresses::check(&request)?;
        let limit = order.settings.quotas.load_balancers;
        quota::check("load_balancers", limit, self.table.truths().count(), 1)?;
        self.addresses.check_free(&request.vips)?;

        let (serial, id) = self.table.reserve();
        self.addresses.assign(serial, &request);
        let balancer = LoadBalancer {
            id,
            name: request.name.clone(),
            scheme: request.scheme,
            families: request.families.clone(),
            status: ProvisioningStatus::PendingCreate,
            vips: Vec::new(),
            placement: request.placement.clone(),
            tags: request.tags.clone(),
            listeners: Vec::new(),
            pools: Vec::new(),
            created_at: order.wall,
            updated_at: order.wall,
        };
        if let Some(token) = request.client_token.clone() {
            self.tokens.insert(token, (request, serial));
        }
        self.file(serial, balancer, order.settings.provisioning.create_ms, order);
        self.current(serial)
    }

    fn by_token(&self, request: &CreateLoadBalancer) -> Result<Option<Arc<LoadBalancer>>, ApiError> {
        let Some(token) = &request.client_token else { return Ok(None) };
        let Some((first, serial)) = self.tokens.get(token) else { return Ok(None) };
        if first != request {
            let message = format!("client_token {token} was used before with other content; use a new one");
            return Err(ApiError::conflict("token_reused", message));
        }
        self.current(*serial).map(Some)
    }

    pub(super) fn update(
        &mut self,
        id: &str,
        request: UpdateLoadBalancer,
        order: &Order<'_>,
    ) -> Result<Arc<LoadBalancer>, ApiError> {
        let serial = self.serial(id)?;
        self.change(serial, order, |balancer, _| {
            if let Some(name) = request.name {
                balancer.name = name;
            }
            if let Some(tags) = request.tags {
                balancer.tags = tags;
            }
            Ok(())
        })?;
        self.current(serial)
    }

    /// Starts a deletion. A load balancer in state ERROR can be deleted too.
    pub(super) fn delete(
        &mut self,
        id: &str,
        children: Children,
        order: &Order<'_>,
    ) -> Result<Arc<LoadBalancer>, ApiError> {
        let serial = self.serial(id)?;
        let mut balancer = LoadBalancer::clone(&*self.current(serial)?);
        if balancer.status.is_pending() {
            return Err(ApiError::immutable(id, balancer.status.as_str()));
        }
        let has_children = !balancer.listeners.is_empty() || !balancer.pools.is_empty();
        if has_children && children == Children::Keep {
            let message =
                format!("load balancer {id} has listeners or pools: delete them, or use ?cascade=true");
            return Err(ApiError::conflict("has_children", message));
        }
        balancer.status = ProvisioningStatus::PendingDelete;
        balancer.updated_at = order.wall;
        self.file(serial, balancer, order.settings.provisioning.delete_ms, order);
        self.current(serial)
    }

    /// Sets a status as an operator of the vendor could, even if a change is in progress.
    pub(super) fn force_status(
        &mut self,
        id: &str,
        status: ProvisioningStatus,
        write: Write,
    ) -> Result<Arc<LoadBalancer>, ApiError> {
        let serial = self.serial(id)?;
        let mut balancer = LoadBalancer::clone(&*self.current(serial)?);
        self.due.retain(|(_, owner), _| *owner != serial);
        if status == ProvisioningStatus::Active {
            balancer.vips = self.addresses.of(serial);
            children::settle(&mut balancer);
        }
        balancer.status = status;
        self.table.put(serial, balancer, write);
        self.current(serial)
    }

    /// Deletes a load balancer at once, as an operator of the vendor could.
    pub(super) fn force_delete(&mut self, id: &str, write: Write) -> Result<(), ApiError> {
        let serial = self.serial(id)?;
        self.current(serial)?;
        self.due.retain(|(_, owner), _| *owner != serial);
        self.forget(serial, write);
        Ok(())
    }

    fn serial(&self, id: &str) -> Result<u64, ApiError> {
        self.table.serial(id).ok_or_else(|| ApiError::not_found("load balancer", id))
    }

    fn current(&self, serial: u64) -> Result<Arc<LoadBalancer>, ApiError> {
        let truth = self.table.truth(serial);
        truth.cloned().ok_or_else(|| ApiError::not_found("load balancer", &id("lb", serial)))
    }

    /// Applies one change to a tree, if the tree permits changes. If the change is refused, the tree stays unchanged.
    fn change<R>(
        &mut self,
        serial: u64,
        order: &Order<'_>,
        change: impl FnOnce(&mut LoadBalancer, &mut Serials) -> Result<R, ApiError>,
    ) -> Result<R, ApiError> {
        let mut balancer = LoadBalancer::clone(&*self.current(serial)?);
        check_ready(&balancer)?;
        let answer = change(&mut balancer, &mut self.children)?;
        balancer.status = ProvisioningStatus::PendingUpdate;
        balancer.updated_at = order.wall;
        self.file(serial, balancer, order.settings.provisioning.update_ms, order);
        Ok(answer)
    }

    /// Stores a pending tree and the time when its change ends.
    fn file(&mut self, serial: u64, balancer: LoadBalancer, takes_ms: u64, order: &Order<'_>) {
        self.table.put(serial, balancer, order.write());
        let done = order.now.saturating_add(Duration::from_millis(takes_ms));
        self.due.insert((done, serial), order.outcome);
    }
}

/// What happens to the listeners and pools of a load balancer that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Children {
    /// The deletion is refused if there are listeners or pools.
    Keep,
    /// The listeners and pools are deleted as well.
    Cascade,
}

fn check_ready(balancer: &LoadBalancer) -> Result<(), ApiError> {
    let LoadBalancer { id, status, .. } = balancer;
    match status {
        ProvisioningStatus::Active => Ok(()),
        ProvisioningStatus::PendingCreate
        | ProvisioningStatus::PendingUpdate
        | ProvisioningStatus::PendingDelete => Err(ApiError::immutable(id, status.as_str())),
        ProvisioningStatus::Error => {
            let message = format!("load balancer {id} is in ERROR and can only be deleted");
            Err(ApiError::conflict("error_state", message))
        }
    }
}

fn has_tags(tags: &Tags, wanted: &[(&str, Option<&str>)]) -> bool {
    wanted
        .iter()
        .all(|(key, value)| tags.get(*key).is_some_and(|there| value.is_none_or(|value| there == value)))
}
