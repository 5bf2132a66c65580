//! Instances. Clients of the API can only read them; tests create and change them with the admin API.

use std::net::Ipv4Addr;
use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Moment;
use super::error::ApiError;
use super::model::{AddressKind, Instance, InstanceAddress, InstanceStatus, Tags, default_network};
use super::table::{Page, PageRequest, Table, Write};

pub(super) const BATCH_MAX: usize = 500;

/// Maximum number of instances that one admin call creates.
const CREATE_MAX: u64 = 10_000;

#[derive(Debug)]
pub(super) struct Instances {
    table: Table<Instance>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewInstances {
    /// The name, in which `{n}` is replaced by the number of the instance. Numbers start at `first`. `{n}` is required if `count` is more
    /// than 1.
    pub(super) name: String,
    #[serde(default = "one")]
    pub(super) count: u64,
    #[serde(default = "one")]
    pub(super) first: u64,
    #[serde(default = "default_type", rename = "type")]
    pub(super) instance_type: String,
    /// The zone of the instance. Unset: zone `a` of the region.
    #[serde(default)]
    pub(super) zone: Option<String>,
    #[serde(default = "default_status")]
    pub(super) status: InstanceStatus,
    /// Addresses. Unset: an internal address in 10.0.0.0/9, and the name as hostname.
    #[serde(default)]
    pub(super) addresses: Option<Vec<InstanceAddress>>,
    #[serde(default)]
    pub(super) tags: Tags,
}

const fn one() -> u64 {
    1
}

fn default_type() -> String {
    "s.medium".to_owned()
}

const fn default_status() -> InstanceStatus {
    InstanceStatus::Running
}

/// A change of an instance. Unset fields do not change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct InstanceChange {
    pub(super) name: Option<String>,
    pub(super) status: Option<InstanceStatus>,
    #[serde(rename = "type")]
    pub(super) instance_type: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) addresses: Option<Vec<InstanceAddress>>,
    pub(super) tags: Option<Tags>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Found {
    pub(super) instances: Vec<Arc<Instance>>,
    pub(super) missing: Vec<String>,
}

impl Instances {
    pub(super) const fn new() -> Self {
        Self { table: Table::new("i") }
    }

    pub(super) fn list(&self, page: PageRequest<'_>, now: Moment) -> Result<Page<Instance>, ApiError> {
        self.table.page(page, now, |_| true)
    }

    pub(super) fn get(&self, id: &str, now: Moment) -> Result<Arc<Instance>, ApiError> {
        let found = self.table.serial(id).and_then(|serial| self.table.visible(serial, now));
        found.cloned().ok_or_else(|| ApiError::not_found("instance", id))
    }

    /// Returns the instances in the order of the request.
    pub(super) fn get_batch<'a>(
        &self,
        ids: impl Iterator<Item = &'a str>,
        now: Moment,
    ) -> Result<Found, ApiError> {
        let mut found = Found { instances: Vec::new(), missing: Vec::new() };
        for (nth, id) in ids.enumerate() {
            if nth >= BATCH_MAX {
                let message = format!("at most {BATCH_MAX} ids fit into one batch; send the rest in another");
                return Err(ApiError::new(StatusCode::BAD_REQUEST, "too_many_items", message)
                    .with(json!({ "limit": BATCH_MAX })));
            }
            match self.table.serial(id).and_then(|serial| self.table.visible(serial, now)) {
                Some(instance) => found.instances.push(Arc::clone(instance)),
                None => found.missing.push(id.to_owned()),
            }
        }
        Ok(found)
    }

    pub(super) fn find(&self, name: &str, now: Moment) -> Vec<Arc<Instance>> {
        self.table.all_visible(now).filter(|instance| instance.name == name).cloned().collect()
    }

    /// Returns whether the instance exists, without the consistency lag of reads.
    pub(super) fn exists(&self, id: &str) -> bool {
        self.table.serial(id).is_some_and(|serial| self.table.truth(serial).is_some())
    }

    pub(super) fn all(&self) -> Vec<Arc<Instance>> {
        self.table.truths().map(|(_, instance)| Arc::clone(instance)).collect()
    }

    pub(super) fn create(
        &mut self,
        order: &NewInstances,
        region: &str,
        made: (Timestamp, Write),
    ) -> Result<Vec<Arc<Instance>>, ApiError> {
        if order.count == 0 || order.count > CREATE_MAX {
            return Err(ApiError::invalid("count", format!("must be 1 to {CREATE_MAX}")));
        }
        if order.count > 1 && !order.name.contains("{n}") {
            return Err(ApiError::invalid(
                "name",
                "must contain {n} when count is more than 1, as in node-{n}",
            ));
        }
        if order.count > 1 && order.addresses.is_some() {
            return Err(ApiError::invalid("addresses", "can be given for one instance only: set count to 1"));
        }
        let (created_at, write) = made;
        let numbers = order.first..order.first.saturating_add(order.count);
        Ok(numbers.filter_map(|n| self.create_one(order, n, region, created_at, write)).collect())
    }

    fn create_one(
        &mut self,
        order: &NewInstances,
        n: u64,
        region: &str,
        created_at: Timestamp,
        write: Write,
    ) -> Option<Arc<Instance>> {
        let (serial, id) = self.table.reserve();
        let name = order.name.replace("{n}", &n.to_string());
        let addresses = order.addresses.clone().unwrap_or_else(|| default_addresses(&name, serial));
        let instance = Instance {
            id,
            name,
            status: order.status,
            instance_type: order.instance_type.clone(),
            zone: order.zone.clone().unwrap_or_else(|| format!("{region}a")),
            region: region.to_owned(),
            addresses,
            tags: order.tags.clone(),
            created_at,
        };
        self.table.put(serial, instance, write);
        self.table.truth(serial).cloned()
    }

    pub(super) fn change(
        &mut self,
        id: &str,
        change: InstanceChange,
        write: Write,
    ) -> Result<Arc<Instance>, ApiError> {
        let (serial, old) = self.existing(id)?;
        let mut instance = Instance::clone(&old);
        assign(&mut instance.name, change.name);
        assign(&mut instance.status, change.status);
        assign(&mut instance.instance_type, change.instance_type);
        assign(&mut instance.zone, change.zone);
        assign(&mut instance.addresses, change.addresses);
        assign(&mut instance.tags, change.tags);
        self.table.put(serial, instance, write);
        self.existing(id).map(|(_, instance)| instance)
    }

    pub(super) fn delete(&mut self, id: &str, write: Write) -> Result<Arc<Instance>, ApiError> {
        let (serial, old) = self.existing(id)?;
        self.table.remove(serial, write);
        Ok(old)
    }

    fn existing(&self, id: &str) -> Result<(u64, Arc<Instance>), ApiError> {
        let serial = self.table.serial(id).ok_or_else(|| ApiError::not_found("instance", id))?;
        let instance = self.table.truth(serial).ok_or_else(|| ApiError::not_found("instance", id))?;
        Ok((serial, Arc::clone(instance)))
    }
}

fn assign<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// Maps the number of the instance to an address of 10.0.0.0/9, which has more addresses than a test has instances.
fn default_addresses(name: &str, serial: u64) -> Vec<InstanceAddress> {
    const BASE: u32 = u32::from_be_bytes([10, 0, 0, 0]);
    const HOSTS: u64 = (1 << 23) - 1;
    let host = u32::try_from(serial % HOSTS).unwrap_or_default();
    let address = Ipv4Addr::from(BASE.saturating_add(host)).to_string();
    vec![
        InstanceAddress { kind: AddressKind::Internal, address, network: default_network() },
        InstanceAddress { kind: AddressKind::Hostname, address: name.to_owned(), network: default_network() },
    ]
}
