//! Checks the scope of the credentials at the start, and again whenever the vendor rejects the credentials.
//!
//! While the credentials are rejected, only one self-check is sent every 30 s, because vendors lock accounts. During that time no instance
//! is reported as gone. The scope of the first check is kept as long as this replica leads.

use std::{sync::Arc, time::Duration};

use cloud_api_proto::v1alpha1::Scope;
use tokio::{sync::watch, time::Instant};

use crate::{
    driver::{Driver, Fault, VendorError},
    vendor::Vendor,
};

/// The delays after a failed self-check: 1 s at first, at most 30 s.
const FIRST: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_secs(30);

/// The reason why the cloud is unreachable. `None`: the cloud is reachable.
type Health = Option<VendorError>;

/// Repeats the check until it succeeds, and returns the scope of the credentials. `known` is the previous scope.
pub(crate) async fn pass<D: Driver>(
    driver: &D,
    vendor: &Arc<Vendor>,
    health: &watch::Sender<Health>,
    known: Option<&Scope>,
) -> Scope {
    let mut delay = FIRST;
    loop {
        match judge(driver.self_check(&vendor.self_checking()).await, known) {
            Ok(scope) => {
                vendor.self_check(true);
                return scope;
            }
            Err(error) => {
                let rejected = matches!(error.fault, Fault::Auth | Fault::Forbidden);
                if rejected {
                    vendor.self_check(false);
                    delay = LAST;
                }
                // If the cloud is only unreachable, credentials that passed an earlier check count as valid.
                if rejected || known.is_none() {
                    tell(health, Some(error));
                }
            }
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(LAST);
    }
}

/// Checks again whenever the vendor rejects the credentials. Never ends.
pub(crate) async fn keep<D: Driver>(
    driver: &D,
    vendor: &Arc<Vendor>,
    health: &watch::Sender<Health>,
    known: &Scope,
) {
    loop {
        let checked = Instant::now();
        vendor.rejected().await;
        pass(driver, vendor, health, Some(known)).await;
        tell(health, None);
        // If credentials are valid and only one operation is forbidden, the interval prevents a self-check after each call.
        tokio::time::sleep_until(checked + LAST).await;
    }
}

/// Refuses credentials of another scope as if the vendor had rejected them, because answers from one scope say nothing about another scope.
fn judge(answer: Result<Scope, VendorError>, known: Option<&Scope>) -> Result<Scope, VendorError> {
    let scope = answer?;
    match known.filter(|known| known.fingerprint != scope.fingerprint) {
        None => Ok(scope),
        Some(known) => {
            let place = |it: &Scope| format!("project {} in {} at {}", it.project, it.region, it.endpoint);
            let text = format!(
                "the credentials are now for {}, but the adapter was started for {}: restore the endpoint or \
                 credentials, or restart the adapter",
                place(&scope),
                place(known)
            );
            Err(VendorError::new(Fault::Forbidden, text))
        }
    }
}

/// Returns whether a leader answers calls in this state. A leader with rejected credentials answers, so that clients get the reason. A
/// leader before its first successful self-check does not answer, because it is still starting.
pub(crate) fn answers(trouble: Option<&VendorError>) -> bool {
    trouble.is_none_or(|error| matches!(error.fault, Fault::Auth | Fault::Forbidden))
}

/// Publishes the state of the cloud, and logs it once per change.
pub(crate) fn tell(health: &watch::Sender<Health>, now: Health) {
    let fault = |health: &Health| health.as_ref().map(|error| error.fault);
    let before = fault(&health.borrow());
    match &now {
        None if before.is_some() => tracing::info!("The cloud is reachable again"),
        Some(error) if matches!(error.fault, Fault::Auth | Fault::Forbidden) && before != fault(&now) => {
            tracing::error!(%error, "The cloud rejects the credentials; only a self-check is sent every 30 s");
        }
        Some(error) if before != fault(&now) => {
            tracing::warn!(%error, "Cannot reach the cloud; repeating the self-check until it succeeds");
        }
        None | Some(_) => (),
    }
    health.send_if_modified(|health| {
        let changes = *health != now;
        *health = now;
        changes
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(project: &str) -> Scope {
        Scope { project: project.into(), fingerprint: project.into(), ..Scope::default() }
    }

    #[test]
    fn the_first_scope_holds() {
        assert_eq!(judge(Ok(scope("a")), None), Ok(scope("a")));
        assert_eq!(judge(Ok(scope("a")), Some(&scope("a"))), Ok(scope("a")));
        let other = judge(Ok(scope("b")), Some(&scope("a"))).expect_err("another scope");
        assert_eq!(other.fault, Fault::Forbidden);
        assert!(
            other.message.contains("project b") && other.message.contains("started for project a"),
            "{other}"
        );
    }
}
