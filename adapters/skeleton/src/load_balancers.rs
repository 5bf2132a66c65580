//! Load balancers. Lists them page by page, with all their listeners and pools.

use cloud_adapter::{
    driver::{Collection, Cursor, LoadBalancerRecord, Page, VendorError},
    vendor::Session,
};

use crate::{SkeletonDriver, not_written::not_written};

/// What a plan needs about a load balancer in addition to the fields of the contract: its listeners and pools, with their IDs and settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Detail;

impl Collection<LoadBalancerRecord<Detail>> for SkeletonDriver {
    async fn list_page(
        &self,
        _session: &Session,
        _cursor: Option<&Cursor>,
        _size: Option<u32>,
    ) -> Result<Page<LoadBalancerRecord<Detail>>, VendorError> {
        Err(not_written("list_page of the load balancers", "src/load_balancers.rs"))
    }
}
