//! Routes. Lists them page by page.

use cloud_adapter::{
    driver::{Collection, Cursor, Page, VendorError},
    vendor::Session,
};
use cloud_api_proto::v1alpha1::Route;

use crate::{SkeletonDriver, not_written::not_written};

impl Collection<Route> for SkeletonDriver {
    async fn list_page(
        &self,
        _session: &Session,
        _cursor: Option<&Cursor>,
        _size: Option<u32>,
    ) -> Result<Page<Route>, VendorError> {
        Err(not_written("list_page of the routes", "src/routes.rs"))
    }
}
