//! Replaces the cloud credentials while the adapter runs. New credentials are verified first, and refused if they belong to another
//! project.
//!
//! If the adapter used credentials of another project, the cloud would seem empty, so all nodes would be deleted, and all load balancers
//! recreated.

use std::{convert::Infallible, sync::Arc, time::Duration};

use cloud_api_proto::v1alpha1::Scope;
use tokio::sync::watch;

use crate::{
    driver::{CredentialsFile, Driver, Fault},
    leadership::Duty,
    reload::{self, Follow},
    rpc::Rpc,
};

/// The value of the label `kind` of `config_reload_total`.
const KIND: &str = "credentials";
/// The delay before the adapter verifies new credentials again. The delay applies if the cause of the failure was not the credentials.
const AGAIN: Duration = Duration::from_secs(10);

/// Whether there are new credentials that were not verified yet. A standby may not call the vendor. When it becomes leader, it verifies new
/// credentials before it uses the old credentials, because the old credentials may have expired. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Untried(Arc<watch::Sender<bool>>);

impl Untried {
    /// Waits until all new credentials are verified. The leader verifies them with one self-check.
    pub(crate) async fn none(&self) {
        // `wait_for` cannot fail, because `self` holds the sender.
        let _none = self.0.subscribe().wait_for(|untried| !untried).await.is_ok();
    }

    fn set(&self, untried: bool) {
        self.0.send_replace(untried);
    }
}

#[derive(Debug, PartialEq)]
enum Verdict {
    /// The new credentials have access to the same scope as the old credentials.
    Switch,
    /// The new credentials have access to another scope, or to no scope. The text is the reason.
    Refuse(String),
    /// The cause of the failed verification was not the credentials. The text is the cause.
    Later(String),
}

/// Returns the verdict for the result of the self-check with the new credentials. `known` is the scope of the old credentials, if it is
/// known.
fn judge(known: Option<&Scope>, found: Result<&Scope, (Fault, String)>) -> Verdict {
    match (known, found) {
        (Some(known), Ok(found)) if known.fingerprint != found.fingerprint => Verdict::Refuse(format!(
            "the new credentials are for {}/{} in {}, but this adapter serves {}/{} in {}: restart \
            the adapter to switch",
            found.account, found.project, found.region, known.account, known.project, known.region
        )),
        (_, Ok(_)) => Verdict::Switch,
        (_, Err((Fault::Auth | Fault::Forbidden, why))) => Verdict::Refuse(why),
        (_, Err((_, why))) => Verdict::Later(why),
    }
}

/// Reads the driver's credentials file periodically, if it has one; never ends.
pub(crate) async fn follow<D: Driver>(driver: Arc<D>, rpc: Rpc, untried: Untried) {
    let Some(file) = driver.credentials() else { return std::future::pending().await };
    let follow =
        Follow::start([file.path.clone()], |contents: &[Vec<u8>]| Ok::<_, Infallible>(contents.concat()));
    let follow = match follow {
        Ok(follow) => follow,
        // This error is unexpected, because the driver has read the file before.
        Err(error) => {
            tracing::error!(%error, "Cannot read the credentials file; restart the adapter after changing credentials");
            return std::future::pending().await;
        }
    };
    let content = follow.current();
    let (driver, file, to) = (&*driver, &file, &rpc);
    let unreadable = |result: Result<&Vec<u8>, &reload::ReloadError<Infallible>>| {
        if let Err(error) = result {
            rpc.metrics.config_reload(KIND, false);
            tracing::error!(%error, "Cannot read the new credentials; continuing with the old ones");
        }
    };
    let take_over =
        take_over(content, &rpc, &untried, |newest| async move { attempt(driver, to, file, &newest).await });
    tokio::join!(follow.run(reload::EVERY, unreadable), take_over);
}

/// Verifies each new content of the file while this replica leads. Repeats `attempt` until it returns true, which means that the verdict is
/// final.
async fn take_over<Content, Tried: Future<Output = bool>>(
    mut content: watch::Receiver<Arc<Content>>,
    rpc: &Rpc,
    untried: &Untried,
    attempt: impl Fn(Arc<Content>) -> Tried,
) {
    while content.changed().await.is_ok() {
        untried.set(true);
        // The refused content is no longer in the file, so the metric is cleared now. The new content may be verified much later.
        rpc.metrics.config_refused(KIND, false);
        loop {
            // Only the leader may call the vendor.
            leads(rpc).await;
            let newest = Arc::clone(&content.borrow_and_update());
            let decided = attempt(newest).await;
            untried.set(false);
            if decided {
                break;
            }
            // If the file changes, the newer content is verified without delay.
            let _sooner = tokio::time::timeout(AGAIN, content.changed()).await.is_ok();
        }
    }
}

async fn leads(rpc: &Rpc) {
    let _leads = rpc.replica.subscribe().wait_for(|duty| matches!(duty, Duty::Leading { .. })).await.is_ok();
}

/// Verifies new credentials, and switches to them if they have the same scope. Returns whether the verdict is final.
async fn attempt<D: Driver>(driver: &D, rpc: &Rpc, file: &CredentialsFile<D>, content: &[u8]) -> bool {
    let verdict = match (file.candidate)(driver, content) {
        Err(why) => Verdict::Refuse(why),
        Ok(candidate) => {
            let session = rpc.vendor.self_checking();
            let found = candidate.self_check(&session).await;
            let found = found.as_ref().map_err(|error| (error.fault, error.to_string()));
            let verdict = judge(rpc.scope().as_ref(), found);
            if verdict == Verdict::Switch {
                (file.adopt)(driver, candidate);
                rpc.vendor.self_check(true);
            }
            verdict
        }
    };
    match verdict {
        Verdict::Switch => {
            rpc.metrics.config_reload(KIND, true);
            tracing::info!("Switched to the new credentials");
        }
        Verdict::Refuse(why) => {
            rpc.metrics.config_reload(KIND, false);
            tracing::error!(why, "Refused the new credentials; continuing with the old ones");
        }
        Verdict::Later(why) => {
            tracing::warn!(why, "Cannot verify the new credentials yet; continuing with the old ones");
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, pin::pin};

    use futures::FutureExt as _;

    use super::*;
    use crate::vendor::tests::{limits, vendor};

    fn scope(project: &str) -> Scope {
        Scope { project: project.to_owned(), fingerprint: format!("print of {project}"), ..Scope::default() }
    }

    #[test]
    fn new_credentials_must_have_the_same_scope() {
        let (ours, other) = (scope("ours"), scope("other"));
        let failed = |fault| Err((fault, "why".to_owned()));
        assert_eq!(judge(Some(&ours), Ok(&ours)), Verdict::Switch);
        assert_eq!(judge(None, Ok(&ours)), Verdict::Switch, "the scope of the old credentials is unknown");
        let refused = judge(Some(&ours), Ok(&other));
        assert!(
            matches!(&refused, Verdict::Refuse(why) if why.contains("other") && why.contains("ours")),
            "{refused:?}"
        );
        for fault in [Fault::Auth, Fault::Forbidden] {
            assert_eq!(judge(Some(&ours), failed(fault)), Verdict::Refuse("why".to_owned()));
        }
        for fault in [Fault::Unavailable, Fault::Throttled, Fault::Budget] {
            assert_eq!(judge(Some(&ours), failed(fault)), Verdict::Later("why".to_owned()));
        }
    }

    #[tokio::test]
    async fn new_credentials_count_as_refused_once_a_leader_refuses_them() {
        let (_fake, vendor) = vendor(&limits(1.0, 1));
        let (rpc, untried) = (Rpc::testing(vendor, None), Untried::default());
        let (file, tried) = (watch::Sender::new(Arc::new("old")), RefCell::new(Vec::new()));
        let attempt = |newest: Arc<&'static str>| {
            tried.borrow_mut().push(*newest);
            rpc.metrics.config_reload(KIND, false);
            std::future::ready(true)
        };
        let shows = |refused: u8| {
            let line = format!("cloud_adapter_config_refused{{kind=\"credentials\"}} {refused}\n");
            let page = rpc.metrics.render().expect("a page");
            assert!(page.contains(&line), "not {refused}: {page}");
        };
        let mut over = pin!(take_over(file.subscribe(), &rpc, &untried, attempt));

        rpc.replica.lead(1);
        file.send_replace(Arc::new("bad"));
        assert_eq!(over.as_mut().now_or_never(), None);
        shows(1);

        rpc.replica.stand_by(None);
        file.send_replace(Arc::new("new"));
        assert_eq!(over.as_mut().now_or_never(), None);
        assert_eq!(*tried.borrow(), ["bad"], "only the leader calls the vendor");
        shows(0);

        rpc.replica.lead(2);
        assert_eq!(over.as_mut().now_or_never(), None);
        assert_eq!(*tried.borrow(), ["bad", "new"]);
        shows(1);
    }
}
