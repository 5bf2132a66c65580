//! Calls about routes.

use cloud_adapter::{
    driver::{Fault, VendorError},
    kit::{page, parse},
    vendor::{Family, Operation, Session},
};
use http::Method;

use super::{Client, PAGE};
use crate::routes::{Batch, BatchAnswer, Entries};

const LIST_ROUTES: Operation = Operation::read(Family::Network, "ListRoutes");
pub(crate) const BATCH_ROUTES: Operation = Operation::write(Family::Network, "BatchRoutes");

impl Client {
    pub(crate) async fn list_routes(
        &self,
        session: &Session,
        cursor: Option<&str>,
        size: Option<u32>,
    ) -> Result<Entries, VendorError> {
        self.read(session, LIST_ROUTES, &page("/v1/routes", cursor, size, PAGE)).await
    }

    pub(crate) async fn batch_routes(
        &self,
        session: &Session,
        batch: &Batch,
    ) -> Result<BatchAnswer, VendorError> {
        let answer = self.write(session, BATCH_ROUTES, (Method::POST, "/v1/routes:batch"), batch).await?;
        // The cloud has executed the batch, but its results are unknown.
        parse(BATCH_ROUTES, &answer).map_err(|error| VendorError { fault: Fault::OutcomeUnknown, ..error })
    }
}
