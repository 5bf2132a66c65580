//! Credentials of the cloud that are replaced while the adapter runs: proved first, and never those of another project.
//!
//! A mistyped project would show an empty cloud: every node gone, every load balancer to be made anew.

use std::{convert::Infallible, sync::Arc, time::Duration};

use cloud_adapter_security::reload::{self, Follow};
use cloud_api_proto::v1alpha1::Scope;
use tokio::sync::watch;

use crate::{
    driver::{CredentialsFile, Driver, Fault},
    replica::Duty,
    rpc::Rpc,
};

/// The word in `config_reload_total`.
const KIND: &str = "credentials";
/// New credentials that could not be proved for another reason than themselves are tried again after this.
const AGAIN: Duration = Duration::from_secs(10);

/// Whether there are new credentials that were not tried yet. A replica that stands by may not ask the vendor: it tries them when it
/// leads, before the old ones, which may be good no more. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Untried(Arc<watch::Sender<bool>>);

impl Untried {
    /// Until there are none. In a replica that leads, that takes one self-check.
    pub(crate) async fn none(&self) {
        // Whoever asks keeps the sender.
        let _none = self.0.subscribe().wait_for(|untried| !untried).await.is_ok();
    }

    fn set(&self, untried: bool) {
        self.0.send_replace(untried);
    }
}

/// What becomes of new credentials.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// They see what the old ones see.
    Switch,
    /// They see something else, or nothing: says why.
    Refuse(String),
    /// It cannot be known yet: says why.
    Later(String),
}

/// Judges what a self-check with the new ones found. `known`: what the old ones see, if that was ever seen.
fn judge(known: Option<&Scope>, found: Result<&Scope, (Fault, String)>) -> Verdict {
    match (known, found) {
        (Some(known), Ok(found)) if known.fingerprint != found.fingerprint => Verdict::Refuse(format!(
            "they are for {}/{} in {}, and this adapter serves {}/{} in {}: restart it to change that",
            found.account, found.project, found.region, known.account, known.project, known.region
        )),
        (_, Ok(_)) => Verdict::Switch,
        (_, Err((Fault::Auth | Fault::Forbidden, why))) => Verdict::Refuse(why),
        (_, Err((_, why))) => Verdict::Later(why),
    }
}

/// Follows the driver's file, if it has one; never ends.
pub(crate) async fn follow<D: Driver>(driver: Arc<D>, rpc: Rpc, untried: Untried) {
    let Some(file) = driver.credentials() else { return std::future::pending().await };
    let follow =
        Follow::start([file.path.clone()], |contents: &[Vec<u8>]| Ok::<_, Infallible>(contents.concat()));
    let follow = match follow {
        Ok(follow) => follow,
        // It was there when the driver was made.
        Err(error) => {
            tracing::error!(%error, "The credentials are not followed: restart the adapter to change them");
            return std::future::pending().await;
        }
    };
    let content = follow.current();
    let (driver, file, to) = (&*driver, &file, &rpc);
    let unreadable = |result: Result<&Vec<u8>, &reload::ReloadError<Infallible>>| {
        if let Err(error) = result {
            rpc.metrics.config_reload(KIND, false);
            tracing::error!(%error, "New credentials cannot be read: the old ones stay in force");
        }
    };
    let take_over =
        take_over(content, &rpc, &untried, |newest| async move { attempt(driver, to, file, &newest).await });
    tokio::join!(follow.run(reload::EVERY, unreadable), take_over);
}

/// Has each new content tried while this replica leads, again and again until `attempt` says that it is decided.
async fn take_over<Content, Tried: Future<Output = bool>>(
    mut content: watch::Receiver<Arc<Content>>,
    rpc: &Rpc,
    untried: &Untried,
    attempt: impl Fn(Arc<Content>) -> Tried,
) {
    while content.changed().await.is_ok() {
        untried.set(true);
        // It is not what was refused, and may not be judged here for long.
        rpc.metrics.config_refused(KIND, false);
        loop {
            // The vendor hears of one replica alone.
            leads(rpc).await;
            let newest = Arc::clone(&content.borrow_and_update());
            let decided = attempt(newest).await;
            untried.set(false);
            if decided {
                break;
            }
            // A newer file need not wait.
            let _sooner = tokio::time::timeout(AGAIN, content.changed()).await.is_ok();
        }
    }
}

/// Until this replica leads.
async fn leads(rpc: &Rpc) {
    let _leads = rpc.replica.subscribe().wait_for(|duty| matches!(duty, Duty::Leading { .. })).await.is_ok();
}

/// Proves new credentials, and goes on with them if they are as good. Whether that is decided.
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
            tracing::info!("New credentials are in force");
        }
        Verdict::Refuse(why) => {
            rpc.metrics.config_reload(KIND, false);
            tracing::error!(why, "New credentials are refused: the old ones stay in force");
        }
        Verdict::Later(why) => {
            tracing::warn!(why, "New credentials cannot be proved yet: the old ones stay in force");
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
    fn new_credentials_must_see_what_the_old_ones_see() {
        let (ours, other) = (scope("ours"), scope("other"));
        let failed = |fault| Err((fault, "why".to_owned()));
        assert_eq!(judge(Some(&ours), Ok(&ours)), Verdict::Switch);
        assert_eq!(judge(None, Ok(&ours)), Verdict::Switch, "the old ones never saw anything");
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
    async fn what_replaces_refused_credentials_counts_as_refused_only_once_a_leader_refuses_it() {
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
        assert_eq!(*tried.borrow(), ["bad"], "the vendor hears of one replica alone");
        shows(0);

        rpc.replica.lead(2);
        assert_eq!(over.as_mut().now_or_never(), None);
        assert_eq!(*tried.borrow(), ["bad", "new"]);
        shows(1);
    }
}
