//! The load balancers: one page of them, with all that belongs to each.

use cloud_adapter::{
    driver::{Collection, Cursor, LoadBalancerRecord, Page, VendorError},
    vendor::Session,
};

use crate::{OpenStackDriver, not_written::not_written};

/// What the plan must know of a load balancer beside the contract's words: its listeners and pools, their IDs and settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Detail;

impl Collection<LoadBalancerRecord<Detail>> for OpenStackDriver {
    async fn list_page(
        &self,
        _session: &Session,
        _cursor: Option<&Cursor>,
        _size: Option<u32>,
    ) -> Result<Page<LoadBalancerRecord<Detail>>, VendorError> {
        Err(not_written("list_page of the load balancers", "src/load_balancers.rs"))
    }
}
