//! Instances. Lists them page by page, and looks them up by ID.

use cloud_adapter::{
    driver::{Collection, Cursor, InstanceLookup, Lookup, Page, VendorError},
    vendor::Session,
};
use cloud_api_proto::v1alpha1::Instance;

use crate::{SkeletonDriver, not_written::not_written};

impl Collection<Instance> for SkeletonDriver {
    async fn list_page(
        &self,
        _session: &Session,
        _cursor: Option<&Cursor>,
        _size: Option<u32>,
    ) -> Result<Page<Instance>, VendorError> {
        Err(not_written("list_page of the instances", "src/instances.rs"))
    }
}

impl InstanceLookup for SkeletonDriver {
    /// Without this look-up, no instance is ever proven to be deleted, because absence from a listing proves nothing.
    async fn get_batch(
        &self,
        _session: &Session,
        _ids: &[String],
    ) -> Result<Option<Vec<Lookup<Instance>>>, VendorError> {
        Ok(None)
    }
}
